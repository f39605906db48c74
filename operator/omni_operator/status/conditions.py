"""Conditions from findings, with transition times that survive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from omni_operator.api.status import Condition, OmniPipelineStatus
from omni_operator.status import reasons

Status = Literal["True", "False", "Unknown"]
MAX_MESSAGE = 1024
"""Longest message, so that `kubectl describe` stays readable."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One condition before it has a time."""

    type: str
    status: Status
    reason: str
    message: str = ""

    @property
    def holds(self) -> bool:
        """Whether the aspect holds."""
        return self.status == "True"


def holds(type_: str, reason: str, message: str = "") -> Finding:
    """Return a finding that an aspect holds."""
    return Finding(type_, "True", reason, message)


def fails(type_: str, reason: str, message: str) -> Finding:
    """Return a finding that an aspect does not hold."""
    return Finding(type_, "False", reason, message)


def unknown(type_: str, reason: str, message: str = "") -> Finding:
    """Return a finding that an aspect cannot be judged."""
    return Finding(type_, "Unknown", reason, message)


def conditions(
    findings: Iterable[Finding], before: OmniPipelineStatus, generation: int, now: float
) -> tuple[Condition, ...]:
    """Return the conditions in their order; one whose status stays keeps its time.

    Aspects without a finding are Unknown: what comes before them went wrong.
    """
    found = {one.type: one for one in findings}
    moment = datetime.fromtimestamp(int(now), UTC)
    return tuple(
        _condition(found.get(type_) or unknown(type_, reasons.UNKNOWN), before, generation, moment)
        for type_ in reasons.ORDER
    )


def _condition(
    finding: Finding, before: OmniPipelineStatus, generation: int, moment: datetime
) -> Condition:
    last = before.condition(finding.type)
    same = last is not None and last.status == finding.status
    return Condition(
        type=finding.type,
        status=finding.status,
        reason=finding.reason,
        message=_cut(finding.message),
        last_transition_time=last.last_transition_time if last and same else moment,
        observed_generation=generation,
    )


def _cut(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…"
