"""Small helpers around TCP ports."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack


def free_port() -> int:
    """Return a port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def free_ports(count: int) -> int:
    """Return the first of so many ports in a row that nobody listens on now."""
    while True:
        first = free_port()
        with ExitStack() as probes:
            try:
                for port in range(first, first + count):
                    probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
        return first


async def http_get(port: int, path: str) -> str:
    """Return the body of a page of this machine."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    assert answer.startswith("HTTP/1.1 200"), answer
    return answer.partition("\r\n\r\n")[2]
