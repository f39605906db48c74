"""Readers of server-sent events on bare sockets, light enough for hundreds in one test."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

LARGEST_EVENT = 256 << 10
DONE = b"[DONE]"

_HEAD_END = b"\r\n\r\n"
_EVENT_END = b"\n\n\r\n"


class EventReader:
    """One request and the events of its answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def asked(
        cls, url: str, body: Mapping[str, Any], buffer_bytes: int | None = None
    ) -> EventReader:
        """Send a chat request.

        Args:
            buffer_bytes: what the system may hold for a reader who does not read.
        """
        where, connection = urlsplit(url), socket.socket()
        if buffer_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        connection.setblocking(False)
        address = (where.hostname or "", where.port or 0)
        await asyncio.get_running_loop().sock_connect(connection, address)
        limit = LARGEST_EVENT if buffer_bytes is None else buffer_bytes
        reader, writer = await asyncio.open_connection(sock=connection, limit=limit)
        content = json.dumps({**body, "stream": True}).encode()
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        return cls(reader, writer)

    async def begun(self) -> EventReader:
        """Wait until the answer begins."""
        head = await self._reader.readuntil(_HEAD_END)
        if not head.startswith(b"HTTP/1.1 200"):
            raise AssertionError(head + await self._reader.read())
        return self

    async def event(self) -> bytes:
        """Return the next event, with the framing of its chunk."""
        return await self._reader.readuntil(_EVENT_END)

    async def text(self) -> str:
        """Read to the end; returns the text of what is left."""
        text = ""
        while DONE not in (event := await self.event()):
            _, _, data = event.partition(b"data: ")
            for choice in json.loads(data)["choices"]:
                text += choice["delta"].get("content", "")
        self._writer.close()
        return text

    def leave(self) -> None:
        """Be gone, without a word."""
        self._writer.transport.abort()
