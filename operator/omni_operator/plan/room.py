"""Whether new pods find room: beside the old ones, and on a node at all."""

from __future__ import annotations

from omni_operator.plan.fleet import Fleet
from omni_operator.plan.goal import UNSCHEDULABLE_SECONDS
from omni_operator.plan.observed import PodState


def is_unschedulable(fleet: Fleet, pod: PodState) -> bool:
    """Whether a pod found no node for a while."""
    return not pod.scheduled and fleet.now - pod.created >= UNSCHEDULABLE_SECONDS


def lacks_capacity(fleet: Fleet) -> bool:
    """Whether a pod of the wanted revision found no node for a while."""
    targets = [fleet.target(shape) for shape in fleet.goal.by_shape]
    return any(
        is_unschedulable(fleet, pod) for one in targets if one is not None for pod in one.living
    )


def cannot_surge(fleet: Fleet, shape: str) -> bool:
    """Whether new pods of a shape need the room of old ones."""
    goal = fleet.wanted(shape)
    if goal is None:
        new = fleet.replacements(shape)
        return not new or any(cannot_surge(fleet, one.shape) for one in new)
    if fleet.goal.surge_free or goal.limits.max_surge == 0:
        return True
    target = fleet.target(shape)
    return target is not None and any(is_unschedulable(fleet, pod) for pod in target.living)


def has_node(fleet: Fleet, shape: str) -> bool:
    """Whether a pod of the wanted revision found a node."""
    target = fleet.target(shape)
    return target is not None and any(pod.scheduled for pod in target.living)


def has_started(fleet: Fleet, shape: str) -> bool:
    """Whether a shape has pods of the wanted revision, or is about to."""
    target = fleet.target(shape)
    return target is not None and target.held > 0
