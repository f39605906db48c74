"""Whether the operator does its work: `/livez`, `/readyz` and `/metrics` over HTTP.

A live task proves nothing. `/livez` answers 503 when a turn does not end, when due pipelines find
no worker, or when the watches were not seen complete for too long.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from omni_wire.listening import listening_socket

Checks = Callable[[], Iterator[str]]
"""Yields what is wrong, in words; nothing when all is well."""


@asynccontextmanager
async def serve_health(port: int, alive: Checks, ready: Checks) -> AsyncIterator[int]:
    """Answer probes while the context lasts; yields the port."""
    routes = [web.get("/livez", _answering(alive)), web.get("/readyz", _answering(ready))]
    async with _serving(port, routes) as bound:
        yield bound


@asynccontextmanager
async def serve_metrics(port: int, registry: CollectorRegistry) -> AsyncIterator[int]:
    """Answer Prometheus while the context lasts; yields the port."""

    async def metrics(_: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(registry), headers=headers)

    async with _serving(port, [web.get("/metrics", metrics)]) as bound:
        yield bound


@asynccontextmanager
async def _serving(port: int, routes: list[web.RouteDef]) -> AsyncIterator[int]:
    application = web.Application()
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        listening = listening_socket(port)
        await web.SockSite(runner, listening).start()
        yield int(listening.getsockname()[1])
    finally:
        await runner.cleanup()


def _answering(checks: Checks) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        wrong = list(checks())
        if not wrong:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="".join(f"{one}\n" for one in wrong))

    return answer
