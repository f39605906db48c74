"""A span per request and stage, for requests that came with a trace.

The gateway puts the W3C headers of its own span into the request's metadata. A stage knows only at
the end when its work began, so its span is made then, with the times that were noted. Without the
`opentelemetry` package, or for a request without a trace, nothing happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec

from omni_runtime.stage_events import Ended
from omni_wire.messages import RequestView

TRACE_CONTEXT = "trace_context"
"""Name in a request's metadata of the headers that stages join."""

_NANOSECONDS = 1_000_000_000


def record_span(instance: str, ended: Ended, unix_offset: float) -> None:
    """Make the span of a request that has ended at a stage.

    Args:
        instance: `stage` or `stage@rN`; names the span.
        unix_offset: seconds to add to monotonic ones to get Unix time.
    """
    carrier = {} if ended.view is None else _headers(ended.view)
    if not carrier or not _installed():
        return
    from opentelemetry import propagate, trace

    def nanoseconds(monotonic: float) -> int:
        return int((monotonic + unix_offset) * _NANOSECONDS)

    span = trace.get_tracer("omni_runtime").start_span(
        instance,
        context=propagate.extract(carrier),
        start_time=nanoseconds(ended.opened_at),
        attributes={"omni.request_id": str(ended.key), "omni.outcome": ended.outcome},
    )
    if ended.first_output_at is not None:
        span.add_event("first output", timestamp=nanoseconds(ended.first_output_at))
    if ended.outcome != "finished":
        span.set_status(trace.StatusCode.ERROR, ended.outcome)
    span.end(nanoseconds(ended.ended_at))


def _headers(view: RequestView) -> dict[str, str]:
    """Return the headers in a request; a hook may have put anything in their place."""
    found = view.metadata.get(TRACE_CONTEXT)
    if not isinstance(found, Mapping):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}


@cache
def _installed() -> bool:
    return find_spec("opentelemetry") is not None
