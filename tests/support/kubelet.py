"""Plays one node: its pods start, are ready when their readiness gates are, and stop when told.

Real pods would need images. What the operator sees of a pod is its status, and that is played
here as a kubelet writes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from omni_operator.controller.client import (
    JSON,
    STRATEGIC_PATCH,
    ApiError,
    Client,
)
from omni_operator.controller.resources import NODES, PODS

TAINT = "omnipipe.dev/pretend"
LABEL = "omnipipe.dev/test-node"
Pod = Mapping[str, Any]
_addresses = itertools.count(1)


def toleration() -> dict[str, str]:
    """Return the toleration without which no pod lands on a pretended node."""
    return {"key": TAINT, "operator": "Exists"}


@dataclass(slots=True)
class Kubelet:
    """One pretended node.

    Attributes:
        name: of the node, and value of its label.
        capacity: extended resources it has.
        private: whether only pods that tolerate its taint land on it.
        starts: whether a pod may become Running; those that may not stay Pending.
        ready: whether the containers of a running pod are ready.
        pods: those it runs, by namespace and name, as last seen.
    """

    client: Client
    session: aiohttp.ClientSession
    name: str
    capacity: Mapping[str, str] = field(default_factory=dict)
    private: bool = True
    starts: Callable[[Pod], bool] = lambda _: True
    ready: Callable[[Pod], bool] = lambda _: True
    pods: dict[tuple[str, str], Pod] = field(default_factory=dict)
    _ips: dict[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Play the node until cancelled."""
        await self._register()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_alive())
            async for pod in self._watch():
                with contextlib.suppress(ApiError):  # the pod changed meanwhile; it is seen again
                    await self._sync(pod)

    async def look_again(self) -> None:
        """Take up what `starts` and `ready` say now of pods that were seen before."""
        for pod in list(self.pods.values()):
            with contextlib.suppress(ApiError):
                await self._sync(pod)

    async def _register(self) -> None:
        await self.client.request(
            "POST",
            NODES.path(),
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": self.name, "labels": {LABEL: self.name}},
                "spec": {
                    "taints": [{"key": TAINT, "effect": "NoSchedule"}] if self.private else []
                },
            },
        )
        await self._heartbeat()

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(10)
            with contextlib.suppress(ApiError):  # the next one will do
                await self._heartbeat()

    async def _heartbeat(self) -> None:
        room = {"cpu": "1000", "memory": "4Ti", "pods": "2000", **self.capacity}
        condition = _condition("Ready", True) | {"lastHeartbeatTime": _now()}
        status = {"capacity": room, "allocatable": room, "conditions": [condition]}
        await self.client.request(
            "PATCH", NODES.path(None, self.name, "status"), {"status": status}, STRATEGIC_PATCH
        )

    async def _sync(self, pod: Pod) -> None:
        metadata = pod["metadata"]
        key = metadata["namespace"], metadata["name"]
        if metadata.get("deletionTimestamp"):
            self.pods.pop(key, None)
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
            await self.client.request("DELETE", PODS.path(*key), options)
            return
        self.pods[key] = pod
        if not self.starts(pod):
            return
        status = self._status(pod)
        if _says_the_same(pod.get("status") or {}, status):
            return
        path = PODS.path(*key, "status")
        body = {"metadata": {"uid": metadata["uid"]}, "status": status}
        self.pods[key] = await self.client.request("PATCH", path, body, STRATEGIC_PATCH)

    def _status(self, pod: Pod) -> dict[str, Any]:
        ip = self._ips.setdefault(pod["metadata"]["uid"], _next_ip())
        works = self.ready(pod)
        gates = pod["spec"].get("readinessGates") or ()
        conditions = (pod.get("status") or {}).get("conditions") or ()
        true = {one["type"] for one in conditions if one["status"] == "True"}
        ready = works and all(gate["conditionType"] in true for gate in gates)
        return {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [
                _condition("Initialized", True),
                _condition("ContainersReady", works),
                _condition("Ready", ready),
            ],
            "containerStatuses": [
                {
                    "name": one["name"],
                    "image": one["image"],
                    "imageID": one["image"],
                    "ready": works,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": _now()}},
                }
                for one in pod["spec"]["containers"]
            ],
            "initContainerStatuses": [
                _initial_container(one) for one in pod["spec"].get("initContainers") or ()
            ],
        }

    async def _watch(self) -> AsyncIterator[Pod]:
        """Yield each pod of the node whenever it changes, until cancelled."""
        url = f"{PODS.path()}?watch=1&fieldSelector=spec.nodeName%3D{self.name}"
        while True:
            async with self.session.get(url, headers={"Accept": JSON}) as answer:
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] in ("ADDED", "MODIFIED"):
                        yield event["object"]
                    elif event["type"] == "DELETED":
                        metadata = event["object"]["metadata"]
                        self.pods.pop((metadata["namespace"], metadata["name"]), None)


def _says_the_same(seen: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    if seen.get("phase") != wanted["phase"]:
        return False
    known = {one["type"]: one["status"] for one in seen.get("conditions") or ()}
    return all(known.get(one["type"]) == one["status"] for one in wanted["conditions"])


def _initial_container(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of an init container that has done its work, or of a sidecar that runs."""
    runs = container.get("restartPolicy") == "Always"
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": _now(), "finishedAt": _now()}
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": container["image"],
        "ready": True,
        "started": runs,
        "restartCount": 0,
        "state": {"running": {"startedAt": _now()}} if runs else {"terminated": ended},
    }


def _condition(name: str, holds: bool) -> dict[str, str]:
    status = "True" if holds else "False"
    return {"type": name, "status": status, "lastTransitionTime": _now()}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _next_ip() -> str:
    number = next(_addresses)
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
