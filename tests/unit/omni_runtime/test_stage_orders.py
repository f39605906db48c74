"""Payload, rows and stream end from two sources, in every order they may come: one result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from examples.two_level_stream.stages import Relay
from omni_runtime.fan_in import FanInRule
from omni_runtime.routing import Routes
from omni_runtime.scheduler import Result
from omni_runtime.stage_events import GatewayPeer
from omni_runtime.stage_wiring import StageWiring
from omni_runtime.streaming_scheduler import StreamingScheduler
from omni_wire.messages import (
    Completed,
    EdgeMessage,
    Open,
    OutputFrame,
    Payload,
    StreamDone,
)
from tests.support.schedulers import NotingOutbox
from tests.support.stage_events import GATEWAY, StageUnderTest, frame, key, payload

STREAM: tuple[EdgeMessage, ...] = (
    Open(key(), "up", {}),
    frame("up", ("a", 0)),
    frame("up", ("a", 1)),
    StreamDone(key(), "up", 2),
    payload(source="up", data="from up"),
)
SIDE: tuple[EdgeMessage, ...] = (payload(source="side", data="from the side"),)


def merge(payloads: dict[str, Payload]) -> Payload:
    return payload(data={source: it.data for source, it in payloads.items()})


def orders(first: Sequence[Any], second: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield every order of two sequences that keeps the order of each."""
    if not first or not second:
        yield [*first, *second]
        return
    for rest in orders(first[1:], second):
        yield [first[0], *rest]
    for rest in orders(first, second[1:]):
        yield [second[0], *rest]


class Summing(Relay):
    """Passes chunks on, and ends with what was merged."""

    def step(self, rows: Any) -> Any:
        made = super().step(rows)
        by_key = {row.key: row for row in rows}
        finished = tuple(Result(it.key, by_key[it.key].payload.data) for it in made.finished)
        return type(made)(made.outputs, finished)


def outcome_of(messages: Sequence[EdgeMessage], steps_between: bool) -> Any:
    """Return what the client gets when messages come in this order.

    Args:
        steps_between: whether the scheduler runs after each message, or only once all have come.
    """
    wiring = StageWiring(
        "stage",
        "stage",
        fan_in=FanInRule(("up", "side"), merge_fn=merge),
        routes=Routes(),
        early_chunks=True,
    )
    stage = StageUnderTest(wiring)
    scheduler = StreamingScheduler(Summing("up", None, "text", lambda numbers: numbers))
    taken = 0

    def run() -> None:
        nonlocal taken
        for message in stage.scheduled[taken:]:
            scheduler.inbox.put(message)
        taken = len(stage.scheduled)
        outbox = NotingOutbox()
        while scheduler.can_step or len(scheduler.inbox):
            scheduler.advance(outbox)
        for made in outbox.messages:
            stage.make(made)

    receipts = []
    for message in messages:
        receipts.append(stage.deliver(message))
        if steps_between:
            run()
    run()
    assert stage.state.in_flight == scheduler.in_flight == 0
    assert all(receipt.returned for receipt in receipts)
    return said(stage.sent(GatewayPeer(GATEWAY)))


def said(messages: Sequence[Any]) -> list[Any]:
    """Return rows and result in the order the client sees them."""
    rows = [
        np.asarray(value).item()
        for message in messages
        if isinstance(message, OutputFrame)
        for value in np.asarray(message.columns["number"])
    ]
    return [rows, *(it.result for it in messages if isinstance(it, Completed))]


@pytest.mark.parametrize("steps_between", [True, False])
@pytest.mark.parametrize("order", list(orders(STREAM, SIDE)))
def test_every_order_gives_the_same(order: list[EdgeMessage], steps_between: bool) -> None:
    merged = {"up": "from up", "side": "from the side"}
    assert outcome_of(order, steps_between) == [[0, 1], merged]
