"""Small helpers around TCP ports."""

from __future__ import annotations

import asyncio
import random
import socket
from pathlib import Path

_random = random.SystemRandom()
_given = set[int]()


def free_port() -> int:
    """Return a port of this machine that nobody listens on now."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """Return the first of so many ports in a row that nobody listens on now.

    None that the system would give to somebody else before they are used, as it gives those of its
    own range to whoever connects or asks for any, and none twice.
    """
    lowest, most = 10_000, _own_range_begins()
    if most < lowest + 1_000:
        most = 60_000  # the system's own range leaves no room below it
    while True:
        first = _random.randrange(lowest, most - count)
        wanted = range(first, first + count)
        if _given.isdisjoint(wanted) and all(map(_is_free, wanted)):
            _given.update(wanted)
            return first


def _own_range_begins() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    except FileNotFoundError:
        return 32_768
    return int(text.split()[0])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


async def http_get(port: int, path: str) -> str:
    """Return the body of a page of this machine."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    assert answer.startswith("HTTP/1.1 200"), answer
    return answer.partition("\r\n\r\n")[2]
