"""Carries out a decision, one action after the other, each guarded against acting on another
object of the same name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import assert_never

from omni_operator.controller.client import MERGE_PATCH, STRATEGIC_PATCH, ApiError, Client
from omni_operator.controller.gateways import Traffic
from omni_operator.controller.logs import EventLogger
from omni_operator.controller.metrics import Metrics
from omni_operator.controller.resources import OWNED, PODS, SECRETS, Resource
from omni_operator.controller.store import Store
from omni_operator.controller.watched import PipelineKey
from omni_operator.names import READINESS_GATE
from omni_operator.plan.world import (
    Action,
    Annotate,
    Apply,
    CancelDrain,
    Delete,
    SetRoutable,
    StartDrain,
)
from omni_operator.render.manifest import Manifest

logger = EventLogger(__name__)

_BY_KIND = {one.kind: one for one in OWNED}


class Executor:
    """Writes to the API server and tells pods."""

    def __init__(self, client: Client, traffic: Traffic, metrics: Metrics) -> None:
        self._client = client
        self._traffic = traffic
        self._metrics = metrics

    async def execute(self, key: PipelineKey, action: Action, store: Store) -> None:
        """Carry out one action and let the store know.

        Raises:
            ApiError: the API server refused or was not reached.
            PodUnreachable: a pod could not be told.
        """
        namespace, _ = key
        match action:
            case Apply(manifest=manifest, drifted=drifted):
                await self._apply(manifest, drifted, store)
            case Delete(id=identity, uid=uid):
                await self._delete(_BY_KIND[identity.kind], namespace, identity.name, uid)
            case SetRoutable():
                await self._patch_pod(namespace, action.pod, _gate(action), "status", store)
            case Annotate(uid=uid, annotations=annotations):
                body: Manifest = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
                await self._patch_pod(namespace, action.pod, body, "", store)
            case StartDrain(ip="") | CancelDrain(ip=""):
                pass  # a pod without an address was never told anything
            case StartDrain():
                await self._traffic.post(action.ip, action.ports, "/drain")
                logger.info("drain", namespace=namespace, pod=action.pod, reason=action.reason)
            case CancelDrain():
                await self._traffic.post(action.ip, action.ports, "/resume")
                logger.info("resume", namespace=namespace, pod=action.pod)
            case _:
                assert_never(action)

    async def apply_secret(self, manifest: Manifest) -> bool:
        """Make a Secret true that may be written but not read; returns whether it was written.

        An empty patch that is only tried answers with what is there.

        Raises:
            ApiError: the API server refused.
        """
        metadata = manifest["metadata"]
        path = SECRETS.path(metadata["namespace"], metadata["name"])
        try:
            live = await self._client.request(
                "PATCH", path, {"metadata": {}}, MERGE_PATCH, {"dryRun": "All"}
            )
        except ApiError as error:
            if not error.is_missing:
                raise
            live = None
        if live is not None and _holds(live, manifest):
            return False
        await self._client.apply(manifest)
        self._metrics.writes.labels("apply", "Secret").inc()
        return True

    async def _apply(self, manifest: Manifest, drifted: tuple[str, ...], store: Store) -> None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if drifted:
            self._metrics.drift_repairs.labels(kind).inc()
            logger.info("drift repaired", kind=kind, name=name, fields=", ".join(drifted))
        live = await self._client.apply(manifest)
        self._metrics.writes.labels("apply", kind).inc()
        store.written(live)

    async def _delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        await self._client.delete(resource, namespace, name, uid)
        self._metrics.writes.labels("delete", resource.kind).inc()
        logger.info("deleted", kind=resource.kind, namespace=namespace, name=name)

    async def _patch_pod(
        self, namespace: str, pod: str, body: Manifest, sub: str, store: Store
    ) -> None:
        path = PODS.path(namespace, pod, sub)
        try:
            live = await self._client.request("PATCH", path, body, STRATEGIC_PATCH)
        except ApiError as error:
            # The pod is gone, or its name is another pod's now: both are reported by the watch.
            if error.is_missing or error.is_conflict:
                return
            raise
        self._metrics.writes.labels("patch", "Pod").inc()
        store.written(live)


def _gate(action: SetRoutable) -> Manifest:
    """Return the patch of a pod's status; lists merge by type in a strategic merge patch."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": READINESS_GATE,
        "status": "True" if action.value else "False",
        "reason": action.reason,
        "lastTransitionTime": now,
    }
    return {"metadata": {"uid": action.uid}, "status": {"conditions": [condition]}}


def _holds(live: Manifest, wanted: Manifest) -> bool:
    """Whether a live Secret has all that was applied."""
    metadata, applied = live["metadata"], wanted["metadata"]
    if (live.get("data") or {}) != wanted["data"]:
        return False
    return all(
        (metadata.get(field) or {}).get(name) == value
        for field in ("labels", "annotations")
        for name, value in applied[field].items()
    )
