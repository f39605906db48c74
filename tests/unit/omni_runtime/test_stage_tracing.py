"""Stages join the trace a request came with, at the times they really worked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from omni_runtime.stage_events import Ended
from omni_runtime.stage_tracing import TRACE_CONTEXT, record_span
from omni_wire.messages import RequestView
from tests.support.stage_events import key

trace: Any = pytest.importorskip("opentelemetry.trace")

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACED = RequestView(metadata={TRACE_CONTEXT: {"traceparent": PARENT}})


@dataclass
class Span:
    """What was said of one span."""

    name: str
    trace_id: int
    started: int
    attributes: dict[str, str]
    events: list[tuple[str, int]] = field(default_factory=list)
    failed: bool = False
    ended: int = 0

    def add_event(self, name: str, timestamp: int) -> None:
        self.events.append((name, timestamp))

    def set_status(self, code: object, description: str) -> None:
        self.failed = code is trace.StatusCode.ERROR

    def end(self, moment: int) -> None:
        self.ended = moment


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[Span]:
    """Everything a tracer was asked for."""
    made: list[Span] = []

    class Tracer:
        def start_span(
            self, name: str, context: Any, start_time: int, attributes: dict[str, str]
        ) -> Span:
            parent = trace.get_current_span(context).get_span_context()
            made.append(Span(name, parent.trace_id, start_time, attributes))
            return made[-1]

    monkeypatch.setattr(trace, "get_tracer", lambda name: Tracer())
    return made


def ended(view: RequestView | None, outcome: str = "finished") -> Ended:
    return Ended(key(), view, outcome, opened_at=2.0, first_output_at=3.0, ended_at=5.0)


def test_a_span_covers_the_time_at_the_stage(spans: list[Span]) -> None:
    record_span("talker@r1", ended(TRACED), unix_offset=100.0)
    [span] = spans
    assert (span.name, span.started, span.ended) == ("talker@r1", 102 * 10**9, 105 * 10**9)
    assert span.trace_id == int(PARENT.split("-")[1], 16)
    assert span.events == [("first output", 103 * 10**9)]
    assert span.attributes == {"omni.request_id": "a", "omni.outcome": "finished"}
    assert not span.failed


def test_a_failed_request_has_a_failed_span(spans: list[Span]) -> None:
    record_span("talker", ended(TRACED, "out of memory"), unix_offset=0.0)
    assert spans[0].failed


@pytest.mark.parametrize(
    "view",
    [None, RequestView()]
    + [RequestView(metadata={TRACE_CONTEXT: wrong}) for wrong in ({}, PARENT, {"traceparent": 5})],
)
def test_a_request_without_a_trace_costs_nothing(
    view: RequestView | None, spans: list[Span]
) -> None:
    record_span("talker", ended(view), unix_offset=0.0)
    assert spans == []
