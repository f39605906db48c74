"""Builders for events of one stage, and a stage whose instructions are easy to read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from omni_runtime.routing import Routes
from omni_runtime.scheduler import InboxMessage, StepOutput
from omni_runtime.stage_events import (
    Delivered,
    Event,
    GatewayPeer,
    GiveBack,
    Instruction,
    Made,
    Outgoing,
    Peer,
    Submitted,
    ToPeer,
    ToScheduler,
)
from omni_runtime.stage_state import StageState
from omni_runtime.stage_wiring import StageWiring
from omni_wire.identity import GATEWAY_SOURCE, Endpoint, RequestKey
from omni_wire.messages import EdgeMessage, Failed, Payload, RequestView, Row, StepFrame

GATEWAY = "00000000cafe"
Kind = TypeVar("Kind", bound=Instruction)


def key(name: str = "a") -> RequestKey:
    """Return the key of a request."""
    return RequestKey(GATEWAY, name)


def endpoint(instance: str, incarnation: int = 1) -> Endpoint:
    """Return an endpoint nobody dials."""
    return Endpoint(instance, f"unix:/{instance}", incarnation)


def payload(
    name: str = "a", source: str = GATEWAY_SOURCE, data: Any = None, **more: Any
) -> Payload:
    """Return a payload; `bound` names the stages it is bound to."""
    bound: Iterable[str] = more.pop("bound", ("next", "other"))
    bindings = {stage: endpoint(stage) for stage in bound}
    return Payload(key(name), source, data, RequestView(), bindings, **more)


def frame(source: str, *rows: tuple[str, int]) -> StepFrame:
    """Return a step with a column `number` that holds each row's chunk id."""
    column = np.array([chunk_id for _, chunk_id in rows])
    named = tuple(Row(key(name), chunk_id) for name, chunk_id in rows)
    return StepFrame(source, 0, named, {"number": column})


class Receipt:
    """A release that counts what came back."""

    def __init__(self) -> None:
        self.returned: list[RequestKey | None] = []

    def __call__(self, key: RequestKey | None = None) -> None:
        self.returned.append(key)


@dataclass
class StageUnderTest:
    """A stage's state machine that carries out what it asks of the world by noting it down."""

    wiring: StageWiring
    now: float = 0.0
    log: list[Instruction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = StageState(self.wiring)

    def happen(self, event: Event) -> list[Instruction]:
        """Apply an event; credits are given back at once."""
        asked = self.state.handle(event, self.now)
        for instruction in asked:
            if isinstance(instruction, GiveBack):
                instruction.release(instruction.key)
        self.log += asked
        return asked

    def submit(self, payload: Payload) -> Receipt:
        """A gateway starts a request."""
        receipt = Receipt()
        self.happen(Submitted(payload, receipt))
        return receipt

    def deliver(self, message: EdgeMessage) -> Receipt:
        """An edge brings a message."""
        receipt = Receipt()
        self.happen(Delivered(message, receipt))
        return receipt

    def make(self, message: Any) -> list[Instruction]:
        """The scheduler puts out a message."""
        return self.happen(Made(message))

    def asked(self, kind: type[Kind]) -> list[Kind]:
        """Return what was asked of one kind, in order."""
        return [instruction for instruction in self.log if isinstance(instruction, kind)]

    @property
    def scheduled(self) -> list[InboxMessage]:
        """Messages to the scheduler, in order."""
        return [instruction.message for instruction in self.asked(ToScheduler)]

    def sent(self, peer: Peer) -> list[Outgoing]:
        """Messages to one peer, in order."""
        return [it.message for it in self.asked(ToPeer) if it.peer == peer]

    @property
    def failures(self) -> list[str]:
        """Reason of every failure the gateway was told of, in order."""
        sent = self.sent(GatewayPeer(GATEWAY))
        return [message.error.reason for message in sent if isinstance(message, Failed)]


def middle_stage(**wiring: Any) -> StageUnderTest:
    """Return a stage that sends and streams to `next`, unless told otherwise."""
    wiring.setdefault("routes", Routes(next=("next",), stream_to=("next",)))
    return StageUnderTest(StageWiring("stage", "stage@r1", **wiring))


def step_output(*names: str, target: str | None = "next") -> StepOutput:
    """Return a step's rows, one for each request; the column `number` counts them."""
    keys = tuple(key(name) for name in names)
    return StepOutput(7, keys, {"number": np.arange(len(keys))}, target, "audio")
