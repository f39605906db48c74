"""Answers over HTTP that end when their reader leaves.

An answer begins before its response does: until the first event has come, a failure is a status of
its own. After that it is a last event of the stream.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from omni_gateway.http_api.errors import error_body
from omni_wire.errors import ServiceError

T = TypeVar("T")

EVENT_STREAM = "text/event-stream"
DONE = b"data: [DONE]\n\n"


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns; cancel it when the client leaves.

    Raises:
        ClientDisconnect: the client left.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


class Pieces(AsyncIterator[bytes]):
    """The pieces of a body, the first of which has come before the response begins."""

    def __init__(self, source: AsyncGenerator[bytes, None]) -> None:
        self._source = source
        self._first: bytes | None = None

    @classmethod
    async def begun(cls, request: Request, source: AsyncGenerator[bytes, None]) -> Pieces:
        """Wait for the first piece.

        Raises:
            ServiceError: there is none, because the request failed.
            ClientDisconnect: the client left before.
        """
        pieces = cls(source)
        try:
            pieces._first = await while_connected(request, _next(source))
        except BaseException:
            await source.aclose()
            raise
        return pieces

    async def __anext__(self) -> bytes:
        first, self._first = self._first, None
        return await anext(self._source) if first is None else first

    async def aclose(self) -> None:
        """End the work that makes pieces."""
        await self._source.aclose()


class AnswerStream(StreamingResponse):
    """A response whose source is closed whatever ends it, also while its reader is stalled."""

    def __init__(self, pieces: Pieces, media_type: str, request_id: str) -> None:
        headers = {"cache-control": "no-store", "x-request-id": request_id}
        super().__init__(pieces, media_type=media_type, headers=headers)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._pieces.aclose()


async def events_of(
    objects: AsyncGenerator[dict[str, Any], None],
) -> AsyncGenerator[bytes, None]:
    """Yield objects as server-sent events; what fails after the first is the last but one."""
    sent = False
    try:
        async with aclosing(objects):
            async for one in objects:
                yield _event(one)
                sent = True
    except ServiceError as error:
        if not sent:
            raise
        yield _event(error_body(error.info))
    yield DONE


def _event(content: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(content, separators=(',', ':'))}\n\n".encode()


async def _next(pieces: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(pieces, None)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue
