"""When stages worked on a request, as `stage` events of the gRPC API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from omni_gateway.coordinator import StageSpan
from omni_wire.v1 import gateway_pb2 as pb


def stage_events(spans: Iterable[StageSpan]) -> list[pb.StageEvent]:
    """Return what happened in all stages, in order of time."""
    moments = [(seconds, phase, span) for span in spans for phase, seconds in _moments(span)]
    moments.sort(key=lambda moment: moment[0])
    return [_event(span, phase, seconds) for seconds, phase, span in moments]


def _moments(span: StageSpan) -> Iterator[tuple[str, float]]:
    yield "started", span.opened
    if span.first_output is not None:
        yield "first_output", span.first_output
    yield "finished", span.finished


def _event(span: StageSpan, phase: str, seconds: float) -> pb.StageEvent:
    event = pb.StageEvent(stage=span.stage, instance=span.instance, phase=phase)
    # Clocks of two machines may differ by more than the way between them takes.
    event.since_admission.FromTimedelta(timedelta(seconds=max(seconds, 0.0)))
    return event
