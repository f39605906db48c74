"""A line and a count for every HTTP request, and its name in the response."""

from __future__ import annotations

import time
from uuid import uuid4

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omni_gateway.http_api.errors import CLIENT_CLOSED_REQUEST
from omni_runtime.logging import EventLogger

logger = EventLogger("omni_gateway.access_log")

OTHER = "other"
"""Route of what is not there: a scanner must not fill the metrics."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_SAFE_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))


class HttpMetrics:
    """Metrics of the HTTP API."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "omni_gateway_http_requests",
            "HTTP requests by route and status.",
            ["route", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "omni_gateway_http_request_duration_seconds",
            "From the head of an HTTP request to the end of its response.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge(
            "omni_gateway_http_requests_in_flight",
            "HTTP requests whose response has not ended.",
            registry=registry,
        )


class AccessLog:
    """Middleware that writes a line per request: path without query, never a body or header."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request and note how it went."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), CLIENT_CLOSED_REQUEST
        # Handlers put the request's name and the caller's here.
        state = scope.setdefault("state", {})
        state["http_id"] = uuid4().hex

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_SAFE_HEADERS]
                if not any(name == b"x-request-id" for name, _ in message["headers"]):
                    name = state.get("request_id", state["http_id"])
                    message["headers"].append((b"x-request-id", name.encode()))
            await send(message)

        with self._metrics.in_flight.track_inprogress():
            try:
                await self._app(scope, receive, noted)
            finally:
                self._note(scope, status, time.monotonic() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", OTHER)
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        state = scope["state"]
        logger.info(
            "http request",
            method=scope["method"],
            path=scope["path"][:256],
            status=status,
            id=state.get("request_id", state["http_id"]),
            caller=state.get("caller", "?"),
            seconds=f"{seconds:.6f}",
        )
