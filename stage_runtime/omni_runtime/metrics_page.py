"""The page that Prometheus scrapes, served by the event loop itself.

The library's own server answers on another thread, where the tables it reads could change under it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from omni_wire.listening import listening_socket

REQUEST_SECONDS = 5.0
MAX_REQUEST_BYTES = 16 * 1024


@asynccontextmanager
async def metrics_page(registry: CollectorRegistry, port: int) -> AsyncIterator[int]:
    """Serve `GET /metrics` on all addresses; yields the port, which is drawn when `port` is 0.

    Raises:
        OSError: the port is taken.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(request, registry))
                await writer.drain()
        except (TimeoutError, EOFError, asyncio.LimitOverrunError, ConnectionError):
            # Somebody who does not speak HTTP, or has left: there is nobody to answer.
            return
        finally:
            writer.close()

    listening = listening_socket(port)
    server = await asyncio.start_server(answer, sock=listening, limit=MAX_REQUEST_BYTES)
    async with server:
        yield listening.getsockname()[1]


def _response(request: bytes, registry: CollectorRegistry) -> bytes:
    method, path, *_ = [*request.split(b"\r\n", 1)[0].split(b" "), b"", b""]
    if method != b"GET" or path.split(b"?")[0] not in (b"/metrics", b"/"):
        return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    body = generate_latest(registry)
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: {CONTENT_TYPE_LATEST}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
