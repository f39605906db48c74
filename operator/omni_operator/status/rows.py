"""The rows of `status`: pod shapes, checkpoint, scale."""

from __future__ import annotations

from collections.abc import Iterable

from omni_operator.api.status import GroupStatus, ModelStatus, ScaleStatus
from omni_operator.names import LABEL_SHAPE
from omni_operator.plan.cluster_state import downloads, labels_of, mps_clients, stage_pods
from omni_operator.plan.fleet import Fleet
from omni_operator.plan.observed import PodState, Workload
from omni_operator.plan.revisions import ShapeTarget
from omni_operator.plan.shapes import PodShape
from omni_operator.plan.world import Observed
from omni_operator.render.manifest import Manifest
from omni_operator.render.optional import group_selector
from omni_operator.render.view import PipelineView

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


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
    """Return attached and expected MPS clients of a shape's pods.

    Null where no MPS is, or no pod says anything of it yet.
    """
    said = [
        (told.mps_attached, mps_clients(pod))
        for pod in _pods_of(shape.name, observed)
        if (told := observed.told.get(pod["metadata"]["name"])) is not None
        and told.mps_attached is not None
    ]
    return (sum(one for one, _ in said), sum(one for _, one in said)) if said else None


def model_status(view: PipelineView, observed: Observed) -> ModelStatus:
    """Return where the checkpoint comes from, and how far a download is."""
    model = view.spec.model
    if model is None or model.repo is None:
        source = view.config.model_path
        return ModelStatus(source=source)
    source = model.repo if model.revision is None else f"{model.repo}@{model.revision}"
    statuses = [one for pod in stage_pods(observed) for one in downloads(pod)]
    done = sum(bool(one.get("ready")) for one in statuses)
    if statuses and done == len(statuses):
        return ModelStatus(source=source, phase="Ready")
    told = [one.downloaded for one in observed.told.values() if one.downloaded is not None]
    progress = f"{done}/{len(statuses)} pods have it"
    if told:
        # Pods with one volume see the same files, and those with volumes of their own differ.
        have, of = min(told)
        progress = f"{_size(have)} of {_size(of)} ({100 * have // max(of, 1)} %), {progress}"
    return ModelStatus(source=source, phase="Downloading", progress=progress)


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


def _size(count: int) -> str:
    """Return bytes as people write them, in binary units."""
    power = min(len(UNITS) - 1, max(0, count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.1f} {UNITS[power]}" if power else f"{count} B"
