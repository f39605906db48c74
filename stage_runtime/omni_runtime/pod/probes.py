"""Answers Kubernetes over plain HTTP: has it started, does it live, is it ready; and drains.

    /startupz   every group was ready once
    /livez      no group is stuck in a step
    /readyz     every group is ready
    /mps        how many processes are attached to their MPS daemon
    /drain      asks the groups to finish their requests and to end, and answers when they have

Whoever may call it off again posts instead, and is answered at once:

    /drain      lets the groups finish their requests and take no new ones
    /resume     lets them take new ones again

Requests are of one line and headers that nobody needs, so no web framework is loaded for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from omni_wire.listening import listening_socket

Answer = tuple[int, str]
Probe = Callable[[], Awaitable[Answer]]

_HEADER_SECONDS = 5.0
_LAST_ANSWER_SECONDS = 5.0
_NOT_ANSWERED = (
    ConnectionError,
    TimeoutError,
    ValueError,
    asyncio.IncompleteReadError,
    asyncio.LimitOverrunError,
)
_MAX_REQUEST_BYTES = 16384
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@asynccontextmanager
async def serving_probes(port: int, probes: Mapping[str, Probe]) -> AsyncIterator[int]:
    """Answer probes on all addresses for the time of the block; yield the port.

    Args:
        port: 0 takes a free one.
        probes: by method and path what to answer.

    Raises:
        OSError: the port is taken.
    """

    open_connections: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_connections.add(task)
        try:
            status, text = await _answer(reader, probes)
            writer.write(_response(status, text))
            await writer.drain()
        except _NOT_ANSWERED:
            # Whoever asked has left, or spoke no HTTP.
            return
        finally:
            writer.close()
            open_connections.discard(task)

    listening = listening_socket(port)
    server = await asyncio.start_server(handle, sock=listening, limit=_MAX_REQUEST_BYTES)
    async with server:
        yield listening.getsockname()[1]
        # Whoever waited for the end is told of it before the process is gone.
        if open_connections:
            await asyncio.wait(open_connections, timeout=_LAST_ANSWER_SECONDS)


async def _answer(reader: asyncio.StreamReader, probes: Mapping[str, Probe]) -> Answer:
    async with asyncio.timeout(_HEADER_SECONDS):
        head = await reader.readuntil(b"\r\n\r\n")
    method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    path = target.partition("?")[0]
    probe = probes.get(f"{method} {path}")
    if probe is not None:
        return await probe()
    if any(known.endswith(f" {path}") for known in probes):
        return 405, f"no {method} at {path}"
    return 404, f"nothing at {path}"


def _response(status: int, text: str) -> bytes:
    body = f"{text}\n".encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
