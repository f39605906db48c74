"""A door in front of an API server that counts, delays, refuses and cuts.

Operators under test come through it over plain HTTP; it adds an administrator's certificate, or
acts as a user with less. What is not told to fail passes unchanged, watches included.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs

import aiohttp
from aiohttp import web
from kubernetes.aio.client import Configuration

WRITES = ("POST", "PUT", "PATCH", "DELETE")
HOP_HEADERS = ("Connection", "Content-Length", "Host", "Transfer-Encoding")


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in."""

    method: str
    path: str
    query: str

    @property
    def is_write(self) -> bool:
        """Whether it may change something; a dry run does not."""
        return self.method in WRITES and "dryRun" not in parse_qs(self.query)

    @property
    def is_watch(self) -> bool:
        """Whether it is a watch."""
        return self.method == "GET" and "watch" in parse_qs(self.query)

    @property
    def is_counted(self) -> bool:
        """Whether it is a write of the kind that budgets count: Events, readiness gates and Lease
        renewals are not."""
        is_gate = "/pods/" in self.path and self.path.endswith("/status")
        is_apart = self.path.endswith("/events") or "/leases" in self.path
        return self.is_write and not is_gate and not is_apart


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a request instead of passing.

    Attributes:
        status: answered without asking the server; 0 to cut the connection.
        after: cut after the server has done it, before its answer arrives.
        retry_after: seconds for the header of that name.
    """

    status: int = 0
    after: bool = False
    retry_after: int | None = None


Fate = Callable[[Request], Fault | None]


@dataclass(slots=True)
class ApiProxy:
    """A running door.

    Attributes:
        url: where to come in.
        requests: everything that came in.
        statuses: every status that the server answered with.
        fate: decides what happens to each request.
        user: name to impersonate, with the groups of service accounts; empty for an administrator.
    """

    url: str
    requests: list[Request] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    fate: Fate = lambda _: None
    user: str = ""
    _watches: set[asyncio.Task[None]] = field(default_factory=set)

    def counted(self) -> list[Request]:
        """Return the writes that count."""
        return [one for one in self.requests if one.is_counted]

    def drop_watches(self) -> None:
        """Cut every watch that is open."""
        for task in self._watches:
            task.cancel()


@contextlib.asynccontextmanager
async def api_proxy(configuration: Configuration) -> AsyncIterator[ApiProxy]:
    """A door to the API server of a configuration while the context lasts."""
    context = ssl_context(configuration)
    async with aiohttp.ClientSession(
        configuration.host,
        connector=aiohttp.TCPConnector(ssl=context, limit=0),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),
    ) as session:
        proxy = ApiProxy("")

        async def pass_on(incoming: web.Request) -> web.StreamResponse:
            return await _pass(proxy, session, incoming)

        application = web.Application(client_max_size=1 << 24)
        application.router.add_route("*", "/{path:.*}", pass_on)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield proxy
        finally:
            proxy.drop_watches()
            await runner.cleanup()


async def _pass(
    proxy: ApiProxy, session: aiohttp.ClientSession, incoming: web.Request
) -> web.StreamResponse:
    request = Request(incoming.method, incoming.path, incoming.query_string)
    proxy.requests.append(request)
    fault = proxy.fate(request)
    if fault is not None and not fault.after:
        return _refuse(incoming, fault)
    headers = {key: one for key, one in incoming.headers.items() if key not in HOP_HEADERS}
    if proxy.user:
        headers["Impersonate-User"] = proxy.user
    async with session.request(
        incoming.method, incoming.rel_url, headers=headers, data=await incoming.read() or None
    ) as answer:
        proxy.statuses.append(answer.status)
        if fault is not None:
            await answer.read()
            return _refuse(incoming, fault)
        return await _answer(proxy, incoming, answer, request)


async def _answer(
    proxy: ApiProxy, incoming: web.Request, answer: aiohttp.ClientResponse, request: Request
) -> web.StreamResponse:
    headers = {key: one for key, one in answer.headers.items() if key not in HOP_HEADERS}
    outgoing = web.StreamResponse(status=answer.status, headers=headers)
    task = asyncio.current_task()
    if request.is_watch and task is not None:
        proxy._watches.add(task)
    try:
        await outgoing.prepare(incoming)
        async for chunk in answer.content.iter_any():
            await outgoing.write(chunk)
        await outgoing.write_eof()
    except ConnectionResetError:
        return outgoing  # whoever asked has gone
    finally:
        if task is not None:
            proxy._watches.discard(task)
        if answer.connection is not None and answer.connection.transport is not None:
            # A polite end of TLS would outlive the test's event loop.
            answer.connection.transport.abort()
    return outgoing


def _refuse(incoming: web.Request, fault: Fault) -> web.StreamResponse:
    if fault.status == 0:
        if incoming.transport is not None:  # else whoever asked has gone already
            incoming.transport.abort()
        return web.Response(status=500)
    reason = {409: "Conflict", 429: "TooManyRequests"}.get(fault.status, "InternalError")
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": f"the test says {fault.status}",
        "reason": reason,
        "code": fault.status,
    }
    return web.json_response(status, status=fault.status, headers=headers)


def ssl_context(configuration: Configuration) -> ssl.SSLContext | bool:
    """Return what aiohttp needs to reach an API server as an administrator."""
    if not configuration.host.startswith("https"):
        return False
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context
