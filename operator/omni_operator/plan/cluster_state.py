"""From live objects to what plans reason about: workloads, pods, revisions that exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from omni_operator.names import (
    ANNOTATION_CLAIM,
    ANNOTATION_DELETION_COST,
    ANNOTATION_DRAIN_STARTED,
    ANNOTATION_GPUS,
    ANNOTATION_MPS_CLIENTS,
    APP_COMPONENT,
    DOWNLOAD_CONTAINER,
    LABEL_REVISION,
    LABEL_SHAPE,
    READINESS_GATE,
    routes_name,
)
from omni_operator.plan.observed import ObservedFleet, PodState, Workload
from omni_operator.plan.revisions import LiveRevision
from omni_operator.plan.world import GatewaysSeen, ObjectId, Observed
from omni_operator.render.config_maps import read_routes
from omni_operator.render.manifest import Manifest
from omni_operator.render.workload import read_pins

COST_DRAINING = "-1000"
"""Deletion cost of a draining pod: below the 0 of all others."""
COST_DONE = "-2000"
"""Deletion cost of a pod whose drain is over, while others of its workload still finish."""
_FINISHED = ("Succeeded", "Failed")


def observed_fleet(pipeline: str, observed: Observed) -> ObservedFleet:
    """Return workloads with their pods, and the revisions gateways know."""
    states = list(_pods_by_revision(observed))
    workloads = [
        _workload(one, [state for key, state in states if key == _key(one)])
        for one in stage_deployments(observed)
    ]
    routes = observed.objects.get(ObjectId("ConfigMap", routes_name(pipeline)))
    return ObservedFleet(tuple(workloads), read_routes(routes))


def stage_deployments(observed: Observed) -> Iterator[Manifest]:
    """Yield the Deployments of pod shapes, of all revisions."""
    for identity, one in observed.objects.items():
        if identity.kind == "Deployment" and LABEL_SHAPE in labels_of(one):
            yield one


def live_revisions(observed: Observed) -> list[LiveRevision]:
    """Return the revisions of pod shapes that exist, whether they have pods or not."""
    return [
        LiveRevision(
            shape=labels_of(one)[LABEL_SHAPE],
            revision=labels_of(one).get(LABEL_REVISION, ""),
            pins=read_pins(one),
            claim=annotations_of(one).get(ANNOTATION_CLAIM, ""),
            created=created_of(one),
        )
        for one in stage_deployments(observed)
    ]


def stage_pods(observed: Observed) -> Iterator[Manifest]:
    """Yield the pods of stages that have not ended."""
    for pod in observed.pods:
        if LABEL_SHAPE in labels_of(pod) and pod.get("status", {}).get("phase") not in _FINISHED:
            yield pod


def gateway_pods(observed: Observed) -> Iterator[Manifest]:
    """Yield the gateway pods."""
    for pod in observed.pods:
        if labels_of(pod).get(APP_COMPONENT) == "gateway":
            yield pod


def mps_clients(pod: Manifest) -> int:
    """Return the processes of a pod that are to attach to its MPS daemon; 0 where it has none."""
    return int(annotations_of(pod).get(ANNOTATION_MPS_CLIENTS, "0"))


def downloads(pod: Manifest) -> Iterator[Manifest]:
    """Yield the state of the container that fetches the checkpoint of a pod, if it has one."""
    for one in pod.get("status", {}).get("initContainerStatuses") or ():
        if one.get("name") == DOWNLOAD_CONTAINER:
            yield one


def pod_state(pod: Manifest, gateways: GatewaysSeen | None) -> PodState:
    """Return what a plan needs of a pod."""
    conditions = conditions_of(pod)
    started = annotations_of(pod).get(ANNOTATION_DRAIN_STARTED)
    routable, in_flight = _traffic(pod, gateways)
    return PodState(
        name=pod["metadata"]["name"],
        uid=pod["metadata"].get("uid", ""),
        created=created_of(pod),
        changed=max(
            (seconds(one.get("lastTransitionTime")) for one in conditions.values()), default=0.0
        ),
        gate=_condition(conditions, READINESS_GATE),
        containers_ready=_condition(conditions, "ContainersReady") is True,
        routable=routable,
        in_flight=in_flight,
        drain_started=None if started is None else float(started),
        released=annotations_of(pod).get(ANNOTATION_DELETION_COST) == COST_DONE,
        terminating="deletionTimestamp" in pod["metadata"],
        scheduled=bool(pod.get("spec", {}).get("nodeName")),
    )


def labels_of(one: Manifest) -> Mapping[str, str]:
    """Return the labels of an object."""
    return one["metadata"].get("labels") or {}


def annotations_of(one: Manifest) -> Mapping[str, str]:
    """Return the annotations of an object."""
    return one["metadata"].get("annotations") or {}


def created_of(one: Manifest) -> float:
    """Return when an object was created, in Unix seconds."""
    return seconds(one["metadata"].get("creationTimestamp"))


def seconds(text: str | None) -> float:
    """Return a timestamp of Kubernetes in Unix seconds; 0 when there is none."""
    return 0.0 if not text else datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def conditions_of(one: Manifest) -> dict[str, dict[str, Any]]:
    """Return the conditions of an object by type."""
    return {it["type"]: it for it in one.get("status", {}).get("conditions") or ()}


def _changed(condition: Mapping[str, Any]) -> float:
    return seconds(condition.get("lastTransitionTime"))


def _traffic(pod: Manifest, gateways: GatewaysSeen | None) -> tuple[bool | None, int | None]:
    if gateways is None or not gateways.whole:
        return None, None
    seen = gateways.pods.get(pod.get("status", {}).get("podIP", ""))
    return (False, 0) if seen is None else (seen.routable, seen.in_flight)


def _condition(conditions: Mapping[str, Mapping[str, Any]], name: str) -> bool | None:
    found = conditions.get(name)
    return None if found is None else found.get("status") == "True"


def _pods_by_revision(observed: Observed) -> Iterator[tuple[tuple[str, str], PodState]]:
    for pod in stage_pods(observed):
        yield _key(pod), pod_state(pod, observed.gateways)


def _key(one: Manifest) -> tuple[str, str]:
    labels = labels_of(one)
    return labels.get(LABEL_SHAPE, ""), labels.get(LABEL_REVISION, "")


def _workload(one: Manifest, pods: list[PodState]) -> Workload:
    shape, revision = _key(one)
    claims = one["spec"]["template"]["spec"].get("resourceClaims") or [{}]
    return Workload(
        name=one["metadata"]["name"],
        shape=shape,
        revision=revision,
        replicas=one["spec"].get("replicas", 1),
        created=created_of(one),
        gpus=int(annotations_of(one).get(ANNOTATION_GPUS, "0")),
        claim=claims[0].get("resourceClaimName", ""),
        pods=tuple(sorted(pods, key=lambda pod: (pod.created, pod.name))),
    )
