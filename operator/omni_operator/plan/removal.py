"""Which pods may go now, and which of them must finish their requests first.

A pod is drained before it is removed: its replica count falls only once it holds no request or its
time is over. A pod that serves nobody and holds no request goes at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from omni_operator.plan.fleet import Fleet
from omni_operator.plan.observed import PodState, Workload
from omni_operator.plan.paths import Paths, ShapeRevision

NEW_REVISION = "another revision is wanted"
SCALE_DOWN = "fewer pods are wanted"


@dataclass(slots=True)
class Removal:
    """What goes.

    Attributes:
        scales: new replicas by shape and revision.
        drains: pods that begin to drain, with the reason.
        cancelled: draining pods that are wanted after all.
    """

    scales: dict[ShapeRevision, int] = field(default_factory=dict)
    drains: list[tuple[PodState, str]] = field(default_factory=list)
    cancelled: list[PodState] = field(default_factory=list)


def removals(fleet: Fleet) -> Removal:
    """Return what goes in this step."""
    removal = Removal()
    for workload, excess in _excesses(fleet):
        _shrink(fleet, workload, excess, removal)
        _cancel(workload, excess, removal)
    paths = _drain(fleet, removal)
    if not removal.drains and not removal.scales:
        _interrupt(fleet, paths, removal)
    return removal


def drain_is_over(fleet: Fleet, shape: str, pod: PodState) -> bool:
    """Whether a draining pod holds no request any more, or its time is up."""
    if pod.drain_started is None:
        return False
    goal = fleet.wanted(shape)
    limit = DEFAULT_DRAIN_SECONDS if goal is None else goal.drain_seconds
    return pod.in_flight == 0 or fleet.now - pod.drain_started >= limit


DEFAULT_DRAIN_SECONDS = 120.0
"""Of a shape that the pipeline has no more, and whose setting is gone with it."""


def _excesses(fleet: Fleet) -> Iterator[tuple[Workload, int]]:
    """Yield each workload with the number of its replicas that should go in the end."""
    for shape in fleet.shapes:
        if fleet.is_left_alone(shape):
            continue
        for workload in fleet.old_workloads(shape):
            yield workload, workload.replicas
        target, goal = fleet.target(shape), fleet.wanted(shape)
        if target is not None and goal is not None:
            yield target, max(0, target.replicas - goal.replicas)


def _shrink(fleet: Fleet, workload: Workload, excess: int, removal: Removal) -> None:
    """Lower replicas by the pods of the excess that nobody would miss."""
    ordered_already = max(0, len(workload.living) - workload.replicas)
    over = sum(drain_is_over(fleet, workload.shape, pod) for pod in workload.living)
    count = min(excess, max(0, over - ordered_already) + _idle(fleet, workload))
    if count:
        key = (workload.shape, workload.revision)
        removal.scales[key] = workload.replicas - count


def _idle(fleet: Fleet, workload: Workload) -> int:
    """Return how many replicas hold no request and are not needed to come back."""
    missing = max(0, workload.replicas - len(workload.living))
    empty = sum(_holds_nothing(pod) for pod in workload.living)
    return min(_spare(fleet, workload), missing + empty)


def _spare(fleet: Fleet, workload: Workload) -> int:
    """Return how many idle replicas may be taken.

    Those of a protected revision stay, but for what a surge-free rollout would take anyway, or when
    new pods find no GPU.
    """
    key = (workload.shape, workload.revision)
    needed = fleet.lacks_capacity and workload.gpus > 0
    if workload is fleet.target(workload.shape) or key not in fleet.protected or needed:
        return workload.replicas
    if not fleet.cannot_surge(workload.shape):
        return 0
    every = fleet.observed.of_shape(workload.shape)
    return max(0, sum(one.replicas for one in every) - fleet.least_available(workload.shape))


def _holds_nothing(pod: PodState) -> bool:
    # A pod without the condition was never routable, so it needs no gateway to vouch for it.
    untouched = pod.in_flight == 0 or (pod.in_flight is None and pod.gate is None)
    return not pod.serves and not pod.draining and untouched


def _cancel(workload: Workload, excess: int, removal: Removal) -> None:
    draining = [pod for pod in workload.living if pod.draining]
    surplus = max(0, len(draining) - excess)
    # The ones that began last have the most to lose, so they are the first to come back.
    draining.sort(key=lambda pod: (pod.drain_started or 0.0, pod.name), reverse=True)
    removal.cancelled += draining[:surplus]


def _drain(fleet: Fleet, removal: Removal) -> Paths:
    """Start every drain after which the remaining paths still serve enough; return those paths."""
    paths = fleet.paths
    for workload, excess in _excesses(fleet):
        reason = SCALE_DOWN if workload is fleet.target(workload.shape) else NEW_REVISION
        for pod in _candidates(workload, excess):
            if _may_go(fleet, paths, workload):
                paths = paths.without((workload.shape, workload.revision))
                removal.drains.append((pod, reason))
    return paths


def _candidates(workload: Workload, excess: int) -> list[PodState]:
    """Return the serving pods of the excess that could drain, those with least to finish first."""
    leaving = sum(not pod.serves for pod in workload.living)
    missing = max(0, workload.replicas - len(workload.living))
    serving = [pod for pod in workload.living if pod.serves and pod.in_flight is not None]
    serving.sort(key=lambda pod: (pod.in_flight or 0, pod.created, pod.name))
    return serving[: max(0, excess - leaving - missing)]


def _may_go(fleet: Fleet, paths: Paths, workload: Workload) -> bool:
    """Whether one more serving pod of a workload may drain."""
    key = (workload.shape, workload.revision)
    before, after = paths.useful_by_shape(), paths.without(key).useful_by_shape()
    if key not in paths.useful():
        return _useless_may_go(fleet, paths, workload)
    return all(
        after.get(shape, 0) >= min(fleet.least_available(shape), before.get(shape, 0))
        for shape in fleet.shapes
    )


def _useless_may_go(fleet: Fleet, paths: Paths, workload: Workload) -> bool:
    """Whether a serving pod without a complete path may drain.

    Of a path that served and could come back, only as far as a surge-free rollout needs its room.
    """
    is_target = workload is fleet.target(workload.shape)
    if is_target or (workload.shape, workload.revision) not in fleet.protected:
        return True
    if not fleet.cannot_surge(workload.shape):
        return False
    serving = paths.serving_by_shape().get(workload.shape, 0)
    return serving - 1 >= fleet.least_available(workload.shape)


def _interrupt(fleet: Fleet, paths: Paths, removal: Removal) -> None:
    """Break the running path where the user allows it and nothing else leads on.

    A shape with a single pod and no room for a second cannot be replaced otherwise.
    """
    if fleet.goal_is_complete or _is_moving(fleet):
        return
    for workload, excess in _excesses(fleet):
        shape = workload.shape
        if workload is fleet.target(shape) or not fleet.cannot_surge(shape):
            continue
        if fleet.least_available(shape) == 0:
            removal.drains += [(pod, NEW_REVISION) for pod in _candidates(workload, excess)]


def _is_moving(fleet: Fleet) -> bool:
    """Whether pods are on their way, so that waiting may be enough."""
    for shape in fleet.goal.by_shape:
        if fleet.is_left_alone(shape):
            continue
        target = fleet.target(shape)
        if target is not None and any(
            not pod.serves and not fleet.is_unschedulable(pod) for pod in target.living
        ):
            return True
        for workload in fleet.old_workloads(shape):
            if any(pod.draining or pod.terminating for pod in workload.pods):
                return True
    return False
