"""Events: edges between two states of the conditions, and deeds of this decision.

Nothing is remembered for them. A condition that keeps its status and reason gives no event, so a
resync, a restart or a second operator repeats none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from omni_operator.api.status import Condition, OmniPipelineStatus
from omni_operator.plan.world import Action, Apply, Event, StartDrain
from omni_operator.status import reasons

NORMAL = "Normal"
WARNING = "Warning"

_GOOD: dict[str, str] = {
    reasons.CONFIG_RESOLVED: "ConfigResolved",
    reasons.ROUTABLE: "Routable",
    reasons.GATEWAY_READY: "GatewayReady",
    reasons.READY: "Ready",
}
"""Event when a condition comes to hold."""
_BAD: dict[str, str] = {
    reasons.ACCEPTED: "ObjectInvalid",
    reasons.CONFIG_RESOLVED: "ConfigInvalid",
    reasons.GPU_SHARING_SUPPORTED: "SharingUnsupported",
    reasons.ROUTABLE: "NotRoutable",
}
"""Event when a condition comes to fail, or fails for another reason."""


def events(
    before: OmniPipelineStatus, after: OmniPipelineStatus, actions: Iterable[Action]
) -> tuple[Event, ...]:
    """Return the events of one decision, causes before effects."""
    return (*_edges(before, after), *_rollout(before, after), *_deeds(actions))


def _edges(before: OmniPipelineStatus, after: OmniPipelineStatus) -> Iterator[Event]:
    for now in after.conditions:
        last = before.condition(now.type)
        if not _is_edge(last, now):
            continue
        if now.status == "True" and now.type in _GOOD and not _holds(last):
            yield Event(NORMAL, _GOOD[now.type], now.message or f"{now.type} holds")
        elif now.status == "False" and now.type in _BAD and _was_known(last, now):
            yield Event(WARNING, _BAD[now.type], now.message)
        elif now.type == reasons.DEGRADED and now.status == "True":
            yield Event(WARNING, now.reason, now.message)


def _rollout(before: OmniPipelineStatus, after: OmniPipelineStatus) -> Iterator[Event]:
    was, now = before.revision.update, after.revision.update
    if now and now != was:
        back = now == before.revision.current and bool(was)
        word = "RolledBack" if back else "RolloutStarted"
        yield Event(NORMAL, word, f"revision {now} is wanted" + (f" after {was}" if was else ""))
    served = after.revision.current
    if served and served == now and before.revision.current != served:
        yield Event(NORMAL, "RevisionServes", f"revision {served} serves requests")
    last = before.condition(reasons.PROGRESSING)
    current = after.condition(reasons.PROGRESSING)
    if current is None or last is None or last.reason == current.reason:
        return
    if current.reason == reasons.ROLLOUT_COMPLETE:
        yield Event(NORMAL, "RolloutCompleted", f"every pod runs revision {now}")
    elif current.reason == reasons.PAUSED:
        yield Event(NORMAL, "RolloutPaused", current.message)


def _deeds(actions: Iterable[Action]) -> Iterator[Event]:
    for action in actions:
        match action:
            case Apply(drifted=drifted) if drifted:
                what = f"{action.id.kind} {action.id.name}"
                yield Event(NORMAL, "DriftRepaired", f"{what}: {', '.join(drifted[:5])}")
            case StartDrain(pod=pod, reason=reason) if reason != "drain goes on":
                yield Event(NORMAL, "DrainStarted", f"{pod}: {reason}")


def _is_edge(last: Condition | None, now: Condition) -> bool:
    return last is None or (last.status, last.reason) != (now.status, now.reason)


def _holds(last: Condition | None) -> bool:
    return last is not None and last.status == "True"


def _was_known(last: Condition | None, now: Condition) -> bool:
    """Whether a failure is news: nothing was routable before the first pod either."""
    starting = now.type == reasons.ROUTABLE and not _holds(last)
    return not starting
