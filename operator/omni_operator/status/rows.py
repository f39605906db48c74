"""The rows of `status`: pod shapes, checkpoint, scale."""

from __future__ import annotations

from collections.abc import Iterable

from omni_operator.api.status import GroupStatus, ModelStatus, ScaleStatus
from omni_operator.names import LABEL_SHAPE
from omni_operator.plan.cluster_state import labels_of, stage_pods
from omni_operator.plan.fleet import Fleet
from omni_operator.plan.observed import PodState, Workload
from omni_operator.plan.revisions import ShapeTarget
from omni_operator.plan.shapes import PodShape
from omni_operator.plan.world import Observed
from omni_operator.render.manifest import Manifest
from omni_operator.render.optional import group_selector
from omni_operator.render.view import PipelineView


def group_rows(
    targets: Iterable[ShapeTarget], fleet: Fleet, observed: Observed
) -> tuple[GroupStatus, ...]:
    """Return one row per pod shape."""
    return tuple(_row(target, fleet, observed) for target in targets)


def groups_ready(rows: Iterable[GroupStatus]) -> str:
    """Return how many shapes have all their pods of the wanted revision routable, of all."""
    listed = list(rows)
    ready = sum(one.updated >= one.desired for one in listed)
    return f"{ready}/{len(listed)}"


def attached(shape: PodShape, observed: Observed) -> tuple[int, int] | None:
    """Return attached and expected MPS clients of a shape's routable pods.

    Null where no MPS is, or no pod says anything of it yet.
    """
    if not shape.mps or observed.gateways is None:
        return None
    clients = sum(unit.mps_client for unit in shape.units)
    said = [
        seen.mps_attached
        for pod in _pods_of(shape.name, observed)
        if (seen := observed.gateways.pods.get(pod.get("status", {}).get("podIP", "")))
        and seen.mps_attached is not None
    ]
    return (sum(said), clients * len(said)) if said else None


def model_status(view: PipelineView, observed: Observed) -> ModelStatus:
    """Return where the checkpoint comes from, and how far a download is."""
    model = view.spec.model
    if model is None or model.repo is None:
        source = view.config.model_path
        return ModelStatus(source=source)
    source = model.repo if model.revision is None else f"{model.repo}@{model.revision}"
    statuses = [
        one
        for pod in stage_pods(observed)
        for one in pod.get("status", {}).get("initContainerStatuses") or ()
        if one.get("name") == "download"
    ]
    done = sum(bool(one.get("ready")) for one in statuses)
    phase = "Ready" if statuses and done == len(statuses) else "Downloading"
    return ModelStatus(source=source, phase=phase, progress=f"{done}/{len(statuses)} pods have it")


def scale_status(view: PipelineView, fleet: Fleet) -> ScaleStatus:
    """Return what the scale subresource reports."""
    scale = view.spec.scale
    shapes = () if scale is None else view.pods.shapes_of(scale.group)
    if not shapes:
        return ScaleStatus()
    return ScaleStatus(
        replicas=sum(len(one.living) for one in fleet.observed.of_shape(shapes[0].name)),
        selector=group_selector(view, shapes[0]),
    )


def _row(target: ShapeTarget, fleet: Fleet, observed: Observed) -> GroupStatus:
    name = target.shape.name
    pods = [(one, pod) for one in fleet.observed.of_shape(name) for pod in one.living]
    goal = fleet.wanted(name)
    mps = attached(target.shape, observed)
    return GroupStatus(
        name=name,
        processes=target.shape.processes,
        sharing=target.shape.mode.value,
        revision=target.revision,
        desired=0 if goal is None else goal.replicas,
        ready=sum(pod.containers_ready for _, pod in pods),
        routable=sum(pod.serves for _, pod in pods),
        updated=sum(_is_updated(one, pod, target) for one, pod in pods),
        draining=sum(pod.draining for _, pod in pods),
        in_flight=_in_flight([pod for _, pod in pods if pod.draining]),
        mps="" if mps is None else f"attached {mps[0]}/{mps[1]}",
    )


def _is_updated(workload: Workload, pod: PodState, target: ShapeTarget) -> bool:
    return workload.revision == target.revision and pod.serves


def _in_flight(pods: list[PodState]) -> int | None:
    """Return the requests of draining pods. Those of all pods change all the time: a status that
    counted them would be written all the time, and metrics count them better."""
    if not pods:
        return None
    counts = [pod.in_flight for pod in pods]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _pods_of(shape: str, observed: Observed) -> list[Manifest]:
    return [pod for pod in stage_pods(observed) if labels_of(pod).get(LABEL_SHAPE) == shape]
