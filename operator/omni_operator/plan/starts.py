"""How many pods of the wanted revision may start now."""

from __future__ import annotations

from omni_operator.plan.fleet import Fleet
from omni_operator.plan.goal import Goal, ShapeGoal
from omni_operator.plan.observed import ObservedFleet, Workload
from omni_operator.plan.paths import ShapeRevision
from omni_operator.plan.removal import Removal, is_moving
from omni_operator.plan.room import cannot_surge, has_started


def starts(fleet: Fleet, removal: Removal) -> dict[ShapeRevision, int]:
    """Return the new replicas of each wanted workload that grows or does not exist yet.

    Pods of other revisions count until they are gone, terminating ones too: what they hold is not
    free before. Surge-free, all pods together stay inside the GPUs that the wanted state needs.

    Args:
        removal: what goes in this step.
    """
    stuck = _is_stuck(fleet, removal)
    found: dict[ShapeRevision, int] = {}
    room = _Room(fleet)
    for goal in fleet.goal.shapes:
        key = (goal.shape, goal.revision)
        if fleet.is_left_alone(goal.shape) or key in removal.scales:
            continue
        target = fleet.target(goal.shape)
        have = 0 if target is None else target.replicas
        others = sum(one.held for one in fleet.old_workloads(goal.shape))
        allowed = min(goal.replicas, goal.most_pods - others)
        if not others and not fleet.goal.surge_free:
            beside = max(goal.limits.max_surge, goal.most_pods - _leaving(fleet, goal))
            allowed = min(goal.replicas, beside)
        if stuck and not has_started(fleet, goal.shape) and not cannot_surge(fleet, goal.shape):
            allowed = min(goal.replicas, 1)
        count = have + room.take(goal, target, max(0, allowed - have))
        if count > have or target is None:
            found[key] = count
    return found


def _leaving(fleet: Fleet, goal: ShapeGoal) -> int:
    """Return the pods of the shape that gives way to this one; of several, of the largest."""
    return max(
        (
            sum(one.held for one in fleet.observed.of_shape(shape))
            for shape in fleet.leaving
            if goal in fleet.replacements(shape)
        ),
        default=0,
    )


def _is_stuck(fleet: Fleet, removal: Removal) -> bool:
    """Whether two old paths hold all the room and neither can go without the other.

    That takes a third revision in the middle of a rollout. One pod more than usual of each shape
    then lets the wanted path begin; capacity is promised, and the surge of a moment is not.
    """
    if len(fleet.old_paths) < 2 or not fleet.gateways_answer or fleet.goal_is_complete:
        return False
    return not removal.drains and not removal.scales and not is_moving(fleet)


class _Room:
    """GPUs that pods may still take; without bound unless the rollout is surge-free."""

    def __init__(self, fleet: Fleet) -> None:
        self._bounded = fleet.goal.surge_free
        self._claims = {one.claim for one in fleet.observed.workloads if one.claim and one.held}
        used = gpus_held(fleet.observed.workloads)
        self._free = max(0, gpu_budget(fleet.goal, fleet.observed) - used)

    def take(self, goal: ShapeGoal, target: Workload | None, wanted: int) -> int:
        """Return how many of `wanted` pods may start, and count them as started."""
        if not self._bounded or not wanted or not goal.gpus or goal.claim in self._claims:
            return wanted
        count = min(wanted, self._free // goal.gpus)
        if count and goal.claim:
            self._claims.add(goal.claim)
            self._free -= goal.gpus
            return wanted
        self._free -= count * goal.gpus
        return count


def gpu_budget(goal: Goal, observed: ObservedFleet) -> int:
    """Return the whole GPUs that a surge-free rollout may hold; a shared claim counts once.

    It is what the wanted pods need, at the size of the old ones where those are larger: a rollout
    to smaller pods could not take a step otherwise.
    """
    claims: dict[str, int] = {}
    own = 0
    for one in goal.shapes:
        if one.claim and one.replicas:
            claims[one.claim] = one.gpus
        elif not one.claim:
            old = [it.gpus for it in observed.of_shape(one.shape) if it.held and not it.claim]
            own += one.replicas * max([one.gpus, *old])
    return own + sum(claims.values())


def gpus_held(workloads: tuple[Workload, ...]) -> int:
    """Return the whole GPUs that pods hold or are about to; a shared claim counts once."""
    claims = {one.claim: one.gpus for one in workloads if one.claim and one.held}
    own = sum(one.gpus * one.held for one in workloads if not one.claim)
    return own + sum(claims.values())
