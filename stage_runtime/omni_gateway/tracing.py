"""Trace context across stages: it travels in the metadata of each request.

The W3C headers of the client's call go along with the request, so every stage can join the trace.
Where the `opentelemetry` package is installed, the gateway adds a span of its own and hands on that
span's context; without it, the client's context passes unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

TRACE_HEADERS = ("traceparent", "tracestate")
"""W3C headers that are passed on."""

_INSTALLED = find_spec("opentelemetry") is not None


@contextmanager
def request_span(
    name: str, request_id: str, headers: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """Open a span for a request, a child of the caller's; yields the context stages should join.

    Args:
        request_id: empty when the gateway is about to draw one.
        headers: metadata of the call; only the W3C trace headers are read.
    """
    given = {key: headers[key] for key in TRACE_HEADERS if key in headers}
    if not _INSTALLED:
        yield given
        return
    from opentelemetry import propagate, trace

    attributes = {"omni.request_id": request_id} if request_id else {}
    # Never the current span: an abandoned stream is closed in another context than it began in.
    span = trace.get_tracer("omni_gateway").start_span(
        name, context=propagate.extract(given), attributes=attributes
    )
    carrier = dict(given)
    propagate.inject(carrier, trace.set_span_in_context(span))
    try:
        yield carrier
    finally:
        span.end()
