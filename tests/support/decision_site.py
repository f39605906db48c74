"""An object and what exists of it, kept in memory: decisions are taken and done, pods are played.

Nothing here is a Kubernetes: fields are kept as they were applied. What an API server makes of them
is tested against a real one.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from omni_operator.names import LABEL_REVISION, LABEL_SHAPE, READINESS_GATE
from omni_operator.plan.decision import decide
from omni_operator.plan.world import (
    Annotate,
    Apply,
    CancelDrain,
    Decision,
    Delete,
    GatewaysSeen,
    ObjectId,
    Observed,
    PodTold,
    PodTraffic,
    SetRoutable,
    StartDrain,
    World,
)
from omni_operator.render.view import Release
from tests.support.objects import DRA, RELEASE, speech

START = 1_700_000_000.0


class Site:
    """An object and what exists of it; pods are played from the Deployments."""

    def __init__(self, manifest: dict[str, Any], release: Release = RELEASE) -> None:
        self.manifest = manifest
        self.release = release
        self.objects: dict[ObjectId, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.traffic: dict[str, PodTraffic] = {}
        self.told: dict[str, PodTold] = {}
        self.gateways = True
        self.now = START

    def decide(self) -> Decision:
        """Return what the operator decides, without doing it."""
        seen = GatewaysSeen(self.traffic, asked=1, answered=1) if self.gateways else None
        pods = tuple(self.pods.values())
        observed = Observed(dict(self.objects), pods, {}, seen, self.told)
        return decide(self.manifest, observed, World(DRA, self.release, self.now))

    def step(self) -> Decision:
        """Decide and do it."""
        decision = self.decide()
        for action in decision.actions:
            self._do(action)
        self.manifest["status"] = decision.status.model_dump(mode="json", by_alias=True)
        return decision

    def edit(self, manifest: dict[str, Any]) -> None:
        """Replace the object's spec."""
        self.manifest["spec"] = manifest["spec"]
        self.manifest["metadata"]["generation"] += 1

    def run(self) -> None:
        """Let Deployments have their pods, all of them serving, and gateways be ready."""
        for one, live in self.objects.items():
            if one.kind != "Deployment":
                continue
            live["status"] = {"readyReplicas": live["spec"]["replicas"]}
            if LABEL_SHAPE in live["metadata"]["labels"]:
                self._pods_of(live)

    def play_gateway(self) -> dict[str, Any]:
        """Add a gateway pod that runs, and return it."""
        one = next(it for it in self.objects if it == ObjectId("Deployment", "demo-gateway"))
        labels = self.objects[one]["spec"]["template"]["metadata"]["labels"]
        pod = {
            "owner": one.name,
            "metadata": {
                "name": "gateway-0",
                "uid": "gateway-0",
                "labels": labels,
                "creationTimestamp": "2023-11-14T22:13:20Z",
            },
            "status": {"phase": "Running", "podIP": "10.1.0.1"},
        }
        self.pods["gateway-0"] = pod
        return pod

    def settle(self) -> list[Decision]:
        """Decide and let the cluster live until nothing is left to do."""
        taken: list[Decision] = []
        for _ in range(30):
            self.run()
            taken.append(self.step())
            if not taken[-1].actions:
                return taken
            self.now += 1
        raise AssertionError(f"never quiet: {taken[-1].actions}")

    def deployments(self) -> dict[str, int]:
        """Return replicas by shape and revision of the stages' Deployments."""
        return {
            one.name: live["spec"]["replicas"]
            for one, live in self.objects.items()
            if one.kind == "Deployment" and LABEL_SHAPE in live["metadata"]["labels"]
        }

    def _pods_of(self, live: dict[str, Any]) -> None:
        template = live["spec"]["template"]["metadata"]
        labels = template["labels"]
        name = live["metadata"]["name"]
        mine = [key for key, pod in self.pods.items() if pod["owner"] == name]
        for key in mine[live["spec"]["replicas"] :]:
            pod = self.pods.pop(key)
            self.traffic.pop(pod["status"]["podIP"], None)
        for number in range(len(mine), live["spec"]["replicas"]):
            pod_name, address = f"{name}-{number}", f"10.0.0.{len(self.traffic) + 1}-{name}"
            self.pods[pod_name] = {
                "owner": name,
                "metadata": {
                    "name": pod_name,
                    "uid": pod_name,
                    "labels": labels,
                    "annotations": dict(template.get("annotations", {})),
                    "creationTimestamp": "2023-11-14T22:13:20Z",
                },
                "spec": {"nodeName": "node", "containers": [{"name": "x"}]},
                "status": {
                    "phase": "Running",
                    "podIP": address,
                    "conditions": [{"type": "ContainersReady", "status": "True"}],
                },
            }
            self.traffic[address] = PodTraffic(True, 0, False, labels[LABEL_REVISION])

    def _do(self, action: Any) -> None:
        match action:
            case Apply(manifest=manifest):
                live = deepcopy(manifest)
                old = self.objects.get(action.id, {})
                live["metadata"]["uid"] = f"{action.id.kind}/{action.id.name}"
                live["metadata"]["creationTimestamp"] = old.get("metadata", {}).get(
                    "creationTimestamp", "2023-11-14T22:13:20Z"
                )
                live["status"] = old.get("status", {})
                self.objects[action.id] = live
            case Delete(id=one):
                del self.objects[one]
            case SetRoutable(pod=pod, value=value):
                conditions = self.pods[pod]["status"]["conditions"]
                conditions[:] = [it for it in conditions if it["type"] != READINESS_GATE]
                conditions.append({"type": READINESS_GATE, "status": str(value)})
            case Annotate(pod=pod, annotations=notes):
                kept = self.pods[pod]["metadata"].setdefault("annotations", {})
                kept.update({key: value for key, value in notes.items() if value is not None})
                for key in [key for key, value in notes.items() if value is None]:
                    kept.pop(key, None)
            case StartDrain(ip=ip) | CancelDrain(ip=ip):
                draining = isinstance(action, StartDrain)
                self.traffic[ip] = PodTraffic(not draining, 0, draining)


def running() -> Site:
    """Return a pipeline that serves."""
    site = Site(speech())
    site.settle()
    return site
