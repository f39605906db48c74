"""Which pods may go now, and which of them must finish their requests first.

A pod is marked before it is removed, even one that serves nobody: it may begin to serve at any
moment, and a ReplicaSet that shrinks takes the marked ones first. Replicas fall only once a marked
pod holds no request or its time is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from omni_operator.plan.fleet import Fleet
from omni_operator.plan.observed import PodState, Workload
from omni_operator.plan.paths import Paths, ShapeRevision
from omni_operator.plan.room import cannot_surge, has_node, is_unschedulable, lacks_capacity

NEW_REVISION = "another revision is wanted"
SCALE_DOWN = "fewer pods are wanted"


@dataclass(slots=True)
class Removal:
    """What goes.

    Attributes:
        scales: new replicas by shape and revision.
        drains: pods that begin to drain, with the reason.
        released: pods whose drain is over and that must go before others.
        cancelled: draining pods that are wanted after all.
    """

    scales: dict[ShapeRevision, int] = field(default_factory=dict)
    drains: list[tuple[PodState, str]] = field(default_factory=list)
    released: list[PodState] = field(default_factory=list)
    cancelled: list[PodState] = field(default_factory=list)


def removals(fleet: Fleet) -> Removal:
    """Return what goes in this step."""
    removal = Removal()
    for workload, excess in _excesses(fleet):
        _shrink(fleet, workload, excess, removal)
        _cancel(workload, excess, removal)
    _drain(fleet, removal)
    if not removal.drains and not removal.scales:
        _interrupt(fleet, removal)
    return removal


def drain_is_over(fleet: Fleet, shape: str, pod: PodState) -> bool:
    """Whether a draining pod holds no request any more, or its time is up."""
    if pod.drain_started is None:
        return False
    goal = fleet.wanted(shape)
    limit = DEFAULT_DRAIN_SECONDS if goal is None else goal.drain_seconds
    return _holds_nothing(pod) or fleet.now - pod.drain_started >= limit


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
    over = _over(fleet, workload, removal)
    missing = min(_missing(workload), _spare(fleet, workload))
    count = min(excess, max(0, over - ordered_already) + missing)
    if count:
        key = (workload.shape, workload.revision)
        removal.scales[key] = workload.replicas - count


def _over(fleet: Fleet, workload: Workload, removal: Removal) -> int:
    """Return how many pods can be removed; mark those that could be mistaken for others first.

    A shrinking ReplicaSet prefers pods that are not ready, and among those the cheaper ones. A pod
    that still finishes its requests is not ready either, so one that is done must be cheaper.
    """
    over = [pod for pod in workload.living if drain_is_over(fleet, workload.shape, pod)]
    finishing = any(pod.gate is not True for pod in workload.living if pod not in over)
    if not finishing:
        return len(over)
    removal.released += [pod for pod in over if not pod.released]
    return sum(pod.released for pod in over)


def _missing(workload: Workload) -> int:
    """Return how many pods its controller has yet to make."""
    return max(0, workload.replicas - len(workload.living))


def _spare(fleet: Fleet, workload: Workload) -> int:
    """Return how many pods that do not serve may be taken.

    Those of a protected revision stay, but for what a surge-free rollout would take anyway, or when
    new pods find no GPU.
    """
    key = (workload.shape, workload.revision)
    needed = lacks_capacity(fleet) and workload.gpus > 0
    if workload is fleet.target(workload.shape) or key not in fleet.protected or needed:
        return workload.replicas
    if not cannot_surge(fleet, workload.shape):
        return 0
    every = fleet.observed.of_shape(workload.shape)
    return max(0, sum(one.replicas for one in every) - fleet.least_available(workload.shape))


def _holds_nothing(pod: PodState) -> bool:
    # A pod without the condition was never routable, so it needs no gateway to vouch for it.
    return pod.in_flight == 0 or (pod.in_flight is None and pod.gate is None)


def _cancel(workload: Workload, excess: int, removal: Removal) -> None:
    draining = [pod for pod in workload.living if pod.draining]
    surplus = max(0, len(draining) - excess)
    # The ones that began last have the most to lose, so they are the first to come back.
    draining.sort(key=lambda pod: (pod.drain_started or 0.0, pod.name), reverse=True)
    removal.cancelled += draining[:surplus]


def _drain(fleet: Fleet, removal: Removal) -> None:
    """Start every drain after which the remaining paths still serve enough."""
    paths = fleet.paths
    for workload, excess in _excesses(fleet):
        shrinks = (workload.shape, workload.revision) in removal.scales
        if shrinks or len(workload.living) > workload.replicas:
            # The controller is choosing a pod to remove: another unready one would confuse it.
            continue
        reason = SCALE_DOWN if workload is fleet.target(workload.shape) else NEW_REVISION
        idle = _idle(fleet, workload, excess)
        removal.drains += [(pod, reason) for pod in idle]
        for pod in _candidates(workload, excess - len(idle)):
            if _may_go(fleet, paths, workload):
                paths = paths.without((workload.shape, workload.revision))
                removal.drains.append((pod, reason))


def _idle(fleet: Fleet, workload: Workload, excess: int) -> list[PodState]:
    """Return the pods of the excess that serve nobody now and need not come back to."""
    idle = [
        pod
        for pod in workload.living
        if not pod.serves and not pod.draining and (pod.in_flight is not None or pod.gate is None)
    ]
    idle.sort(key=lambda pod: (pod.scheduled, -pod.created, pod.name))
    return idle[: max(0, min(_room(workload, excess), _spare(fleet, workload)))]


def _candidates(workload: Workload, excess: int) -> list[PodState]:
    """Return the serving pods of the excess that could drain, those with least to finish first."""
    serving = [pod for pod in workload.living if pod.serves and pod.in_flight is not None]
    serving.sort(key=lambda pod: (pod.in_flight or 0, pod.created, pod.name))
    return serving[: _room(workload, excess)]


def _room(workload: Workload, excess: int) -> int:
    """Return how much of an excess is neither on its way out nor missing anyway."""
    draining = sum(pod.draining for pod in workload.living)
    return max(0, excess - draining - _missing(workload))


def _may_go(fleet: Fleet, paths: Paths, workload: Workload) -> bool:
    """Whether one more serving pod of a workload may drain."""
    key = (workload.shape, workload.revision)
    if not fleet.path_is_wanted:
        serving = paths.serving_by_shape().get(workload.shape, 0)
        return serving - 1 >= fleet.least_available(workload.shape)
    if key not in paths.useful():
        return _useless_may_go(fleet, paths, workload)
    before, after = paths.useful_by_shape(), paths.without(key).useful_by_shape()
    enough = all(
        after.get(shape, 0) >= min(fleet.least_available(shape), before.get(shape, 0))
        for shape in fleet.goal.by_shape
    )
    return enough and _is_replaced(fleet, paths, workload)


def _is_replaced(fleet: Fleet, paths: Paths, workload: Workload) -> bool:
    """Whether shapes that the pipeline has no more and those in their place serve enough after.

    Pods of a leaving shape stay until the wanted revision serves, where that can stand beside them.
    """
    if not fleet.leaving or fleet.goal.surge_free:
        return True
    left = paths.without((workload.shape, workload.revision))
    if not fleet.goal_is_complete:
        before, after = paths.useful_by_shape(), left.useful_by_shape()
        fewer = (one for one in fleet.leaving if after.get(one, 0) < before.get(one, 0))
        if any(not cannot_surge(fleet, shape) for shape in fewer):
            return False
    least = min((one.least_available for one in fleet.all_replacements), default=0)
    return fleet.carried(left) >= min(least, fleet.carried(paths))


def _useless_may_go(fleet: Fleet, paths: Paths, workload: Workload) -> bool:
    """Whether a serving pod without a complete path may drain.

    Of a path that served and could come back, only as far as a surge-free rollout needs its room.
    """
    is_target = workload is fleet.target(workload.shape)
    if is_target or (workload.shape, workload.revision) not in fleet.protected:
        return True
    if not cannot_surge(fleet, workload.shape):
        return False
    serving = paths.serving_by_shape().get(workload.shape, 0)
    return serving - 1 >= fleet.least_available(workload.shape)


def _interrupt(fleet: Fleet, removal: Removal) -> None:
    """Break a running path where nothing else leads on.

    A shape that may be gone for a while, with no room for new pods beside the old, goes as a whole.
    Two old paths in the way of a third revision may each hold pods that the other lacks: the one
    that carries less is given up.
    """
    if fleet.goal_is_complete or is_moving(fleet):
        return
    given_up = _weakest_path(fleet)
    for workload, excess in _excesses(fleet):
        shape = workload.shape
        if workload is fleet.target(shape) or not cannot_surge(fleet, shape):
            continue
        in_the_way = (shape, workload.revision) in given_up and not has_node(fleet, shape)
        if fleet.least_available(shape) == 0 or in_the_way:
            removal.drains += [(pod, NEW_REVISION) for pod in _candidates(workload, excess)]


def _weakest_path(fleet: Fleet) -> set[ShapeRevision]:
    """Return the shape revisions of the old path that carries least, while there are several."""
    if len(fleet.old_paths) < 2:
        return set()
    serving = fleet.paths.serving
    weakest = min(fleet.old_paths, key=lambda one: min(serving[it] for it in one.shapes.items()))
    return set(weakest.shapes.items())


def is_moving(fleet: Fleet) -> bool:
    """Whether pods are on their way, so that waiting may be enough."""
    for shape in fleet.goal.by_shape:
        if fleet.is_left_alone(shape):
            continue
        target = fleet.target(shape)
        if target is not None and any(
            not pod.serves and not is_unschedulable(fleet, pod) for pod in target.living
        ):
            return True
        for workload in fleet.old_workloads(shape):
            if any(pod.draining or pod.terminating for pod in workload.pods):
                return True
    return False
