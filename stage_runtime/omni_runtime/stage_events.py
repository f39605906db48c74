"""What can happen to a stage, and what it then asks of the world around it.

`StageState` turns the first into the second and touches nothing itself; `Stage` carries them.
"""

from __future__ import annotations

from dataclasses import dataclass

from omni_runtime.scheduler import InboxMessage, OutboxMessage
from omni_wire.edge import Release
from omni_wire.errors import ServiceError
from omni_wire.identity import Endpoint, RequestKey
from omni_wire.messages import Completed, EdgeMessage, Failed, OutputFrame, Payload, RequestView


@dataclass(frozen=True, slots=True)
class GatewayPeer:
    """A gateway as somebody to send to, by its incarnation id."""

    gateway: str


Peer = Endpoint | GatewayPeer

Outgoing = EdgeMessage | OutputFrame | Completed | Failed


@dataclass(frozen=True, slots=True)
class Submitted:
    """A gateway starts a request here."""

    payload: Payload
    release: Release


@dataclass(frozen=True, slots=True)
class Delivered:
    """An edge brought a message."""

    message: EdgeMessage
    release: Release


@dataclass(frozen=True, slots=True)
class Made:
    """The scheduler put a message into its outbox."""

    message: OutboxMessage


@dataclass(frozen=True, slots=True)
class Unsendable:
    """A message of this request can never be sent: too large, or nothing the wire can carry."""

    key: RequestKey
    error: ServiceError


@dataclass(frozen=True, slots=True)
class StallChanged:
    """A request's output to one peer ran out of credit, or has credit again."""

    peer: Peer
    key: RequestKey
    stalled: bool


@dataclass(frozen=True, slots=True)
class AbortAsked:
    """A gateway wants a request gone, and to be told when it is."""

    key: RequestKey
    reason: str


@dataclass(frozen=True, slots=True)
class PeerLost:
    """An instance is gone for good: one this stage sends to, or one it hears from."""

    endpoint: Endpoint
    error: ServiceError


@dataclass(frozen=True, slots=True)
class GatewayLost:
    """A gateway has been out of reach for longer than its lease."""

    gateway: str


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The time named by `StageState.next_due` has come."""


@dataclass(frozen=True, slots=True)
class DrainStarted:
    """No new request is accepted from here on; those already bound go on."""


@dataclass(frozen=True, slots=True)
class DrainExpired:
    """The time to finish is over: fail what is left."""


Event = (
    Submitted
    | Delivered
    | Made
    | Unsendable
    | StallChanged
    | AbortAsked
    | PeerLost
    | GatewayLost
    | TimePassed
    | DrainStarted
    | DrainExpired
)


@dataclass(frozen=True, slots=True)
class ToScheduler:
    """Put a message into the scheduler's inbox."""

    message: InboxMessage


@dataclass(frozen=True, slots=True)
class ToPeer:
    """Post a message on the edge to an instance, or on the link to a gateway."""

    peer: Peer
    message: Outgoing


@dataclass(frozen=True, slots=True)
class AbortPeer:
    """Drop what still waits for this request on the way to a peer, and tell the peer."""

    peer: Peer
    key: RequestKey
    reason: str


@dataclass(frozen=True, slots=True)
class ForgetPeer:
    """Nothing more of this request goes to a peer."""

    peer: Peer
    key: RequestKey


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Return the credit of one request's share of a delivered message."""

    release: Release
    key: RequestKey


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """This stage holds nothing of an aborted request any more."""

    key: RequestKey


@dataclass(frozen=True, slots=True)
class Ended:
    """A request ended at this stage; nothing has to be done, somebody may want to know.

    Attributes:
        view: the request as this stage knew it.
        outcome: "finished", or why not, for people.
        opened_at: when its first message came, monotonic seconds.
        first_output_at: when its first row left, None for none.
        ended_at: now.
    """

    key: RequestKey
    view: RequestView | None
    outcome: str
    opened_at: float
    first_output_at: float | None
    ended_at: float


Instruction = ToScheduler | ToPeer | AbortPeer | ForgetPeer | GiveBack | Acknowledge | Ended
