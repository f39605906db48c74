"""How far a rollout is, and when to look again although nothing was reported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from omni_operator.plan.actions import Wait
from omni_operator.plan.fleet import Fleet
from omni_operator.plan.goal import UNSCHEDULABLE_SECONDS
from omni_operator.plan.removal import DEFAULT_DRAIN_SECONDS, Removal
from omni_operator.plan.room import lacks_capacity


class RolloutPhase(StrEnum):
    """State of a rollout."""

    COMPLETE = "Complete"
    PROGRESSING = "Progressing"
    STALLED = "Stalled"
    PAUSED = "Paused"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rollout is.

    Attributes:
        waiting: shapes that are not as wanted yet.
        lacks_capacity: whether a wanted pod finds no node.
        overdue: shapes with a pod whose drain is past its time.
    """

    phase: RolloutPhase
    waiting: tuple[str, ...] = ()
    lacks_capacity: bool = False
    overdue: tuple[str, ...] = ()


def progress(fleet: Fleet) -> Progress:
    """Return how far the rollout is."""
    waiting = tuple(shape for shape in fleet.shapes if not _is_settled(fleet, shape))
    overdue = tuple(
        workload.shape
        for workload, pod in fleet.observed.pods()
        if pod.drain_started is not None
        and pod.in_flight
        and fleet.now - pod.drain_started >= _drain_seconds(fleet, workload.shape)
    )
    return Progress(_phase(fleet, waiting), waiting, lacks_capacity(fleet), overdue)


def next_look(fleet: Fleet, removal: Removal) -> Iterator[Wait]:
    """Yield the wait until the next thing that only time brings about, if there is any."""
    started = {pod.uid: fleet.now for pod, _ in removal.drains}
    moments: list[tuple[float, str]] = []
    for workload, pod in fleet.observed.pods():
        begun = started.get(pod.uid, pod.drain_started)
        if begun is not None and not pod.terminating:
            over = begun + _drain_seconds(fleet, workload.shape)
            moments.append((over, f"drain of {pod.name}"))
        if not pod.scheduled:
            moments.append((pod.created + UNSCHEDULABLE_SECONDS, f"{pod.name} has no node"))
    if any(not _is_settled(fleet, shape) for shape in fleet.shapes):
        deadline = _last_change(fleet) + fleet.goal.progress_deadline
        moments.append((deadline, "progress deadline"))
    ahead = [(at, reason) for at, reason in moments if at > fleet.now]
    if ahead:
        at, reason = min(ahead)
        yield Wait(at - fleet.now, reason)


def _phase(fleet: Fleet, waiting: tuple[str, ...]) -> RolloutPhase:
    if not waiting:
        return RolloutPhase.COMPLETE
    if fleet.goal.paused:
        return RolloutPhase.PAUSED
    if fleet.now - _last_change(fleet) >= fleet.goal.progress_deadline:
        return RolloutPhase.STALLED
    return RolloutPhase.PROGRESSING


def _is_settled(fleet: Fleet, shape: str) -> bool:
    """Whether a shape has its wanted pods, all serving, and no other."""
    goal, target = fleet.wanted(shape), fleet.target(shape)
    if any(one.held for one in fleet.old_workloads(shape)):
        return False
    if goal is None:
        return True
    serving = 0 if target is None else sum(pod.serves for pod in target.pods)
    held = 0 if target is None else target.held
    return serving == goal.replicas == held


def _last_change(fleet: Fleet) -> float:
    moments = [fleet.revisions[-1].created]
    moments += [one.created for one in fleet.observed.workloads]
    moments += [max(pod.created, pod.changed) for _, pod in fleet.observed.pods()]
    return max(moments)


def _drain_seconds(fleet: Fleet, shape: str) -> float:
    goal = fleet.wanted(shape)
    return DEFAULT_DRAIN_SECONDS if goal is None else goal.drain_seconds
