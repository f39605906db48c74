"""What the API server thinks of objects that this operator renders, told on the pipeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omni_operator.api.status import OmniPipelineStatus
from omni_operator.plan.world import Decision
from omni_operator.status import reasons
from omni_operator.status.conditions import Finding, conditions, fails, holds
from omni_operator.status.events import events


def with_refusals(
    decision: Decision, refusals: Iterable[str], before: OmniPipelineStatus, now: float
) -> Decision:
    """Return a decision that says which of its objects were refused, and why.

    Only the API server knows all rules of a podTemplate or of a quantity. What ran before goes on;
    the conditions about it stay.
    """
    message = "; ".join(refusals)
    told = {
        reasons.PROGRESSING: fails(reasons.PROGRESSING, reasons.OBJECT_REFUSED, message),
        reasons.DEGRADED: holds(reasons.DEGRADED, reasons.OBJECT_REFUSED, message),
        reasons.READY: fails(reasons.READY, reasons.OBJECT_REFUSED, message),
    }
    found = [
        told.get(one.type) or Finding(one.type, one.status, one.reason, one.message)
        for one in decision.status.conditions
    ]
    generation = decision.status.observed_generation
    status = decision.status.model_copy(
        update={"conditions": conditions(found, before, generation, now)}
    )
    return replace(decision, status=status, events=events(before, status, ()))
