"""What a rollout promises, as assertions over one step: the state before, the actions, the state
after."""

from __future__ import annotations

from collections.abc import Sequence

from omni_operator.plan.actions import Drain, RolloutAction
from omni_operator.plan.goal import Goal
from omni_operator.plan.observed import KnownRevision, ObservedFleet
from omni_operator.plan.paths import Paths
from omni_operator.plan.starts import gpu_budget, gpus_held


def judge(
    goal: Goal, before: ObservedFleet, after: ObservedFleet, taken: Sequence[RolloutAction]
) -> None:
    """Fail when a step breaks a promise."""
    _judge_paths(goal, before, taken)
    most = max(gpu_budget(goal, before), gpus_held(before.workloads))
    if goal.surge_free and not goal.paused:
        assert gpus_held(after.workloads) <= most, "more GPUs than the rollout may hold"
    for one in goal.shapes:
        had = sum(it.held for it in before.of_shape(one.shape))
        has = sum(it.held for it in after.of_shape(one.shape))
        started = any(it.held for it in before.of_shape(one.shape) if it.revision == one.revision)
        # Between two old paths the wanted one may begin with a pod more than the surge.
        extra = 1 if not started and _two_old_paths(goal, before) else 0
        assert has <= max(had + extra, one.most_pods), f"too many pods of {one.shape}"


def _judge_paths(goal: Goal, before: ObservedFleet, taken: Sequence[RolloutAction]) -> None:
    drained = {one.uid for one in taken if isinstance(one, Drain)}
    if not drained:
        return
    paths = Paths.of(before, _with_goal(goal, before))
    useful = paths.useful_by_shape()
    for workload, pod in before.pods():
        if pod.uid in drained and pod.serves:
            paths = paths.without((workload.shape, workload.revision))
    left = paths.useful_by_shape()
    if _may_interrupt(goal, before) or not all(one.replicas for one in goal.shapes):
        return
    for one in goal.shapes:
        least = min(one.least_available, useful.get(one.shape, 0))
        assert left.get(one.shape, 0) >= least, f"{one.shape} serves less than promised"
    _judge_leaving(goal, before, drained)


def _judge_leaving(goal: Goal, before: ObservedFleet, drained: set[str]) -> None:
    """Fail when a group that the pipeline has no more goes before what takes its place serves."""
    wanted = {one.shape: one.revision for one in goal.shapes}
    paths = Paths.of(before, _with_goal(goal, before))
    no_room = any(not pod.scheduled for _, pod in before.pods())
    if no_room or goal.surge_free or any(one.limits.max_surge == 0 for one in goal.shapes):
        return
    if paths.complete(KnownRevision(goal.revision, wanted, 0.0)):
        return
    for workload, pod in before.pods():
        if pod.uid in drained and pod.serves and workload.shape not in wanted:
            key = (workload.shape, workload.revision)
            assert key not in paths.useful(), f"{workload.shape} went before its successor served"


def _with_goal(goal: Goal, before: ObservedFleet) -> tuple[KnownRevision, ...]:
    shapes = {one.shape: one.revision for one in goal.shapes}
    others = [one for one in before.revisions if one.name != goal.revision]
    return (*others, KnownRevision(goal.revision, shapes, 0.0))


def _may_interrupt(goal: Goal, before: ObservedFleet) -> bool:
    """Whether some changed shape may be wholly gone for a while, and has no other way."""
    if _may_interrupt_leaving(goal, before):
        return True
    for one in goal.shapes:
        old = [it for it in before.of_shape(one.shape) if it.revision != one.revision]
        target = [it for it in before.of_shape(one.shape) if it.revision == one.revision]
        no_room = any(not pod.scheduled for it in target for pod in it.living)
        stuck = goal.surge_free or one.limits.max_surge == 0 or no_room
        if any(it.living for it in old) and one.least_available == 0 and stuck:
            return True
        if stuck and _two_old_paths(goal, before):
            return True
    return False


def _may_interrupt_leaving(goal: Goal, before: ObservedFleet) -> bool:
    """Whether a shape that the pipeline has no more may go at once: it has no limits any more."""
    names = {one.shape for one in goal.shapes}
    if not any(one.living for one in before.workloads if one.shape not in names):
        return False
    no_room = any(not pod.scheduled for _, pod in before.pods())
    return goal.surge_free or (no_room and any(not one.least_available for one in goal.shapes))


def _two_old_paths(goal: Goal, before: ObservedFleet) -> bool:
    """Whether a third revision is wanted while two others serve."""
    others = [one for one in before.revisions if one.name != goal.revision]
    paths = Paths.of(before, others)
    return sum(paths.complete(one) for one in others) > 1
