"""What happens to the Coordinator, and what it asks to be done: plain values, so that every order
of events can be tried without a network.
"""

from __future__ import annotations

from dataclasses import dataclass

from omni_gateway.coordinator.records import Phase
from omni_gateway.coordinator.streams import Output
from omni_wire.errors import ErrorInfo, ServiceError
from omni_wire.identity import RequestKey
from omni_wire.messages import Payload, RequestView, Tree


@dataclass(frozen=True, slots=True)
class Submitted:
    """A client asks for something.

    Attributes:
        deadline: when it fails, on the clock of `time.monotonic()`.
        revision: the only revision that may serve it, null for any.
        warm_up: name of the warm-up that it is; empty for what clients ask.
    """

    request_id: str
    view: RequestView
    deadline: float
    revision: str | None = None
    warm_up: str = ""


@dataclass(frozen=True, slots=True)
class SubmitSent:
    """The transport took the request; the entry stage will see it unless its process dies."""

    key: RequestKey


@dataclass(frozen=True, slots=True)
class SubmitRefused:
    """The transport did not take the request; no stage will ever see it."""

    key: RequestKey
    error: ServiceError


@dataclass(frozen=True, slots=True)
class OutputArrived:
    """A terminal stage sent a chunk."""

    key: RequestKey
    output: Output


@dataclass(frozen=True, slots=True)
class StageCompleted:
    """A terminal stage sent its result."""

    key: RequestKey
    sender: int
    stage: str
    result: Tree
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StageFailed:
    """A stage could not serve the request."""

    key: RequestKey
    sender: int
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class AbortRequested:
    """Somebody wants the request ended; the reason becomes its outcome."""

    request_id: str
    error: ServiceError


@dataclass(frozen=True, slots=True)
class AbortAcked:
    """A replica holds nothing of the request any more."""

    key: RequestKey
    sender: int


@dataclass(frozen=True, slots=True)
class ConsumerLeft:
    """The reader of the request is gone: it read everything, or it gave up."""

    request_id: str


@dataclass(frozen=True, slots=True)
class ReplicaLost:
    """A group process is gone for good."""

    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class ReplicasChanged:
    """A replica registered or became ready: waiting requests may find their path now."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A deadline or a lease may have run out."""


@dataclass(frozen=True, slots=True)
class DrainStarted:
    """No further request is taken; those in flight go on."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Everything in flight fails with this error; no further request is taken."""

    error: ErrorInfo


Event = (
    Submitted
    | SubmitSent
    | SubmitRefused
    | OutputArrived
    | StageCompleted
    | StageFailed
    | AbortRequested
    | AbortAcked
    | ConsumerLeft
    | ReplicaLost
    | ReplicasChanged
    | TimePassed
    | DrainStarted
    | Stopped
)


@dataclass(frozen=True, slots=True)
class SendSubmit:
    """Send the request to the replica with the entry stage, then report `SubmitSent` or
    `SubmitRefused`.
    """

    incarnation: int
    payload: Payload


@dataclass(frozen=True, slots=True)
class SendAbort:
    """Tell a replica to drop the request and to acknowledge it."""

    incarnation: int
    key: RequestKey
    reason: str


@dataclass(frozen=True, slots=True)
class ReturnCredit:
    """Nobody will read these chunks: release them, so that their senders are not held back."""

    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Readable:
    """The reader of the request has something to take, or its end to see."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The request ended, for the log and the metrics; happens exactly once per request.

    Attributes:
        reason: stable reason of the error, empty for a success.
        seconds: since it was submitted.
        warm_up: name of the warm-up that it was; empty for what clients ask.
    """

    key: RequestKey
    phase: Phase
    reason: str
    seconds: float
    warm_up: str = ""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A replica was lost: its connection and whatever waits for it can be closed."""

    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class AbortCompleted:
    """Every replica that held an aborted epoch has let go of it, or is gone."""

    key: RequestKey


@dataclass(frozen=True, slots=True)
class Released:
    """Nobody holds the request id any more; it may be used again."""

    request_id: str


Instruction = (
    SendSubmit
    | SendAbort
    | ReturnCredit
    | Readable
    | Finished
    | Dropped
    | AbortCompleted
    | Released
)
