"""One request as the Coordinator keeps it, from its admission until nobody holds its id."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from omni_gateway.coordinator.binding import Binding
from omni_gateway.coordinator.streams import OutputBuffer
from omni_wire.errors import ServiceError
from omni_wire.identity import RequestKey
from omni_wire.messages import RequestView, Tree


class Phase(StrEnum):
    """Where a request stands; the last three are its end, and exactly one of them is reached."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"

    @property
    def finished(self) -> bool:
        """Whether nothing can change the outcome any more."""
        return self not in (Phase.PENDING, Phase.RUNNING)


@dataclass(slots=True)
class RequestRecord:
    """One request.

    Attributes:
        key: identity in the stages; a resubmission takes a new epoch.
        view: the request, kept only while it may still have to be sent (again).
        expected: terminal stages whose results complete it.
        needed: stages it may pass.
        binding: its replicas; null while it waits for some.
        results: result of each terminal that completed.
        result: outcome of a completed request.
        error: outcome of a failed or aborted one.
        has_consumer: whether its reader is still there.
        unacknowledged: replicas that have not confirmed an abort, for each epoch that was aborted.
        resubmits_left: how often it may start anew after losing a replica.
        warm_up: name of the warm-up that it is; empty for what clients ask.
    """

    key: RequestKey
    view: RequestView | None
    expected: tuple[str, ...]
    needed: frozenset[str]
    submitted_at: float
    deadline: float
    revision: str | None
    buffer: OutputBuffer
    resubmits_left: int
    route_until: float
    warm_up: str = ""
    phase: Phase = Phase.PENDING
    binding: Binding | None = None
    results: dict[str, Tree] = field(default_factory=dict)
    result: Tree = None
    error: ServiceError | None = None
    has_consumer: bool = True
    unacknowledged: dict[RequestKey, set[int]] = field(default_factory=dict)

    @property
    def request_id(self) -> str:
        """The client's name for the request."""
        return self.key.request_id

    @property
    def waiting(self) -> bool:
        """Whether it waits for replicas."""
        return self.phase is Phase.PENDING and self.binding is None

    @property
    def held(self) -> bool:
        """Whether the request, its reader or an abort still owns the id."""
        return not self.phase.finished or self.has_consumer or bool(self.unacknowledged)

    def bound_to(self, incarnation: int) -> bool:
        """Whether a replica is one of those chosen for the current epoch."""
        return self.binding is not None and incarnation in self.binding.bound

    def expects(self, stage: str, sender: int) -> bool:
        """Whether a chunk or a result of that stage still counts."""
        return (
            not self.phase.finished
            and stage in self.expected
            and stage not in self.results
            and self.bound_to(sender)
        )

    def merged(self) -> Tree:
        """Return what completes the request: the only terminal's result, or results by stage."""
        if len(self.expected) == 1:
            return self.results[self.expected[0]]
        return {stage: self.results[stage] for stage in self.expected}
