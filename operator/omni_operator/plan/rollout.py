"""One step of a rollout: what to do now, from the goal, what is observed and the time.

Nothing is remembered between steps, so an operator that was killed, an edit in the middle and the
way back to an old revision are no special cases. Pods start as far as surge and GPUs allow; a pod
goes only when the paths that remain serve as much as the rollout promises, or when the user allowed
an interruption and there is no other way on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from omni_operator.plan.actions import (
    CancelDrain,
    DeleteRevision,
    Drain,
    Release,
    RolloutAction,
    Scale,
    SetReadinessGate,
    SetRoutes,
)
from omni_operator.plan.fleet import Fleet
from omni_operator.plan.goal import Goal, frozen
from omni_operator.plan.observed import KnownRevision, ObservedFleet, PodState, Workload
from omni_operator.plan.paths import Paths
from omni_operator.plan.progress import next_look
from omni_operator.plan.removal import removals
from omni_operator.plan.starts import starts


def decide(goal: Goal, observed: ObservedFleet, now: float) -> tuple[RolloutAction, ...]:
    """Return the actions of this step; none when everything is as wanted.

    Args:
        now: Unix seconds.
    """
    revisions = known_revisions(goal, observed, now)
    if goal.paused:
        goal = frozen(goal, observed)
    fleet = Fleet(goal, observed, revisions, now)
    removal = removals(fleet)
    drains = {pod.uid: reason for pod, reason in removal.drains}
    scales = {**removal.scales}
    for (shape, revision), count in starts(fleet, removal).items():
        scales[shape, revision] = count
    return (
        *_routes(observed, revisions),
        *(Drain(pod.name, pod.uid, reason) for pod, reason in removal.drains),
        *(Release(pod.name, pod.uid) for pod in removal.released),
        *(CancelDrain(pod.name, pod.uid) for pod in removal.cancelled),
        *_gates(observed, drains, {pod.uid for pod in removal.cancelled}),
        *(Scale(shape, revision, count) for (shape, revision), count in scales.items()),
        *_history(fleet),
        *next_look(fleet, removal),
    )


def readiness_steps(observed: ObservedFleet) -> tuple[SetReadinessGate, ...]:
    """Return only what keeps routable pods ready, for an object that cannot be carried out."""
    return tuple(_gates(observed, {}, set()))


def known_revisions(goal: Goal, observed: ObservedFleet, now: float) -> tuple[KnownRevision, ...]:
    """Return the revisions that requests may be pinned to, oldest first, the wanted one last.

    One that lost all pods of some shape can never serve again and is forgotten.
    """
    wanted = KnownRevision(
        goal.revision,
        {one.shape: one.revision for one in goal.shapes},
        created=now,
        groups=goal.groups,
    )
    alive = {(one.shape, one.revision) for one in observed.workloads if one.replicas or one.living}
    kept: list[KnownRevision] = []
    for known in observed.revisions:
        if known.name == goal.revision:
            # Wanted again after others: it becomes the newest.
            newest = observed.revisions[-1].name == known.name
            wanted = known if newest else replace(known, created=now)
        elif all(one in alive for one in known.shapes.items()):
            kept.append(known)
    found = (*kept, wanted)
    paths = Paths.of(observed, found)
    return tuple(
        replace(one, served=True) if not one.served and paths.complete(one) else one
        for one in found
    )


def _routes(observed: ObservedFleet, revisions: tuple[KnownRevision, ...]) -> Iterator[SetRoutes]:
    if revisions != observed.revisions:
        yield SetRoutes(revisions)


def _gates(
    observed: ObservedFleet, drains: dict[str, str], cancelled: set[str]
) -> Iterator[SetReadinessGate]:
    for _, pod in observed.pods():
        if pod.terminating:
            continue
        gate, reason = _gate(pod, drains, cancelled)
        if gate is not None and gate != pod.gate:
            yield SetReadinessGate(pod.name, pod.uid, gate, reason)


def _gate(pod: PodState, drains: dict[str, str], cancelled: set[str]) -> tuple[bool | None, str]:
    """Return what the gate should say; null leaves it, for gateways that cannot be asked."""
    if pod.uid in drains or (pod.draining and pod.uid not in cancelled):
        return False, "Draining"
    if pod.routable is None or pod.uid in cancelled:
        return None, ""
    return pod.routable, "Routable" if pod.routable else "NotRegistered"


def _history(fleet: Fleet) -> Iterator[DeleteRevision]:
    """Delete the oldest revisions without pods beyond the history limit."""
    limit = fleet.goal.history_limit
    for shape in fleet.shapes:
        idle = [one for one in fleet.old_workloads(shape) if _is_idle(one)]
        keep = 0 if shape not in fleet.goal.by_shape else limit
        for one in idle[: max(0, len(idle) - keep)]:
            yield DeleteRevision(one.name, one.shape, one.revision)


def _is_idle(workload: Workload) -> bool:
    return workload.replicas == 0 and not workload.pods
