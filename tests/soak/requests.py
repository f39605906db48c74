"""One request to the two-level stream, and what became of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any

import grpc
import numpy as np

from examples.two_level_stream.stages import FRAME_SAMPLES
from omni_wire.status import error_of
from omni_wire.trees import from_proto, to_numpy, to_proto
from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.v1 import gateway_pb2_grpc as pb_grpc

REQUEST_SECONDS = 60.0
"""More than any request can take; one that reaches it never ended."""
MOST_NUMBERS = 30
_DETAILS = "grpc-status-details-bin"
"""Trailing metadata that carries the type of an error."""


class End(StrEnum):
    """The ways a request may end, and the one it must not."""

    SUCCESS = "success"
    FAILURE = "typed failure"
    CANCELLED = "cancelled"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended.

    Attributes:
        detail: reason of a failure, or what is wrong.
        retryable: the client was told to come back.
    """

    end: End
    detail: str = ""
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a client asks for.

    Attributes:
        leaves_after: events after which it leaves, null when it stays.
    """

    start: int
    count: int
    speaks: bool
    leaves_after: int | None

    @classmethod
    def drawn(cls, random: Random, leaving: float) -> Plan:
        """Draw a request; a share of `leaving` leaves early."""
        count = random.randint(0, MOST_NUMBERS)
        leaves = random.random() < leaving
        return cls(
            start=random.randrange(1 << 40),
            count=count,
            speaks=random.random() < 0.8,
            leaves_after=random.randint(0, count) if leaves else None,
        )

    def message(self) -> pb.GenerateRequest:
        """Return the request as it is sent."""
        return pb.GenerateRequest(
            modalities=["text", "audio"] if self.speaks else ["text"],
            params={"start": to_proto(self.start), "count": to_proto(self.count)},
        )


@dataclass(slots=True)
class Received:
    """What came back for one request."""

    chunks: dict[str, list[tuple[int, Any]]] = field(default_factory=lambda: defaultdict(list))
    results: dict[str, Any] = field(default_factory=dict)
    finished: bool = False

    def add(self, event: pb.GenerateEvent) -> None:
        """Take in one event."""
        match event.WhichOneof("event"):
            case "output" if event.output.final:
                self.results[event.output.stage] = from_proto(event.output.data)
            case "output":
                data = to_numpy(from_proto(event.output.data))
                self.chunks[event.output.stage].append((event.output.chunk_id, data))
            case "finished":
                self.finished = True

    def problem(self, plan: Plan) -> str:
        """Return what is wrong with a success, empty when nothing is."""
        numbers = list(range(plan.start, plan.start + plan.count))
        expected: dict[str, list[Any]] = {"text": numbers}
        if plan.speaks:
            expected["sound"] = [[number] * FRAME_SAMPLES for number in numbers]
        if not self.finished:
            return "the stream ended without a last event"
        if self.results.keys() != expected.keys() or not self.chunks.keys() <= expected.keys():
            return f"results of {sorted(self.results)}, chunks of {sorted(self.chunks)}"
        for stage, values in expected.items():
            ids = [chunk_id for chunk_id, _ in self.chunks[stage]]
            came = [np.asarray(data["number"]).tolist() for _, data in self.chunks[stage]]
            if ids != list(range(plan.count)) or came != values:
                return f"{stage}: chunks {ids} with {came}, expected {values}"
            if self.results[stage]["chunks"] != plan.count:
                return f"{stage}: result {self.results[stage]} for {plan.count} chunks"
        return ""


async def ask(stub: pb_grpc.GatewayServiceAsyncStub, plan: Plan) -> Outcome:
    """Send a request, read its answer and say how it ended."""
    received = Received()
    call = stub.GenerateStream(plan.message(), timeout=REQUEST_SECONDS, wait_for_ready=True)
    seen = 0
    try:
        async for event in call:
            received.add(event)
            seen += 1
            if plan.leaves_after is not None and seen > plan.leaves_after:
                call.cancel()
                return Outcome(End.CANCELLED)
    except grpc.aio.AioRpcError as error:
        return _failure(error)
    problem = received.problem(plan)
    return Outcome(End.WRONG, problem) if problem else Outcome(End.SUCCESS)


def _failure(error: grpc.aio.AioRpcError) -> Outcome:
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Outcome(End.WRONG, f"no end within {REQUEST_SECONDS:g} s")
    if _DETAILS not in dict(error.trailing_metadata() or ()):
        return Outcome(End.WRONG, f"a failure without a type: {error.code()}: {error.details()}")
    typed = error_of(error)
    return Outcome(End.FAILURE, typed.reason, typed.retryable)
