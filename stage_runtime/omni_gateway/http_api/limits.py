"""Bounds of what one connection may make the gateway hold, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omni_gateway.errors import BodyTooLarge, BodyTooSlow
from omni_gateway.memory import clients_share_bytes
from omni_wire.errors import QueueFull

LINGER_SECONDS = 5.0
"""How long an answer that comes before the end of the body lets its client write on. Most clients
read nothing until they have written all, and would hear of a closed connection instead."""
MOST_BODY_BYTES = 128 << 20
"""Bound on a body, however much memory there is."""
MOST_HELD_BYTES = 1 << 30
"""Bound on all bodies together, however much memory there is."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of a request.

    Attributes:
        body_bytes: largest body.
        body_seconds: time for the whole body to arrive.
        idle_seconds: a connection without a request in progress is closed after this time, or
            twice of it, whether it is silent or sends headers drop by drop.
        held_bytes: most bytes of all bodies whose requests have not ended.
    """

    body_bytes: int = MOST_BODY_BYTES
    body_seconds: float = 60.0
    idle_seconds: float = 30.0
    held_bytes: int = MOST_HELD_BYTES


def limits_within(memory_bytes: int, body_bytes: int | None = None) -> HttpLimits:
    """Return the limits of a gateway that may use so much memory.

    Args:
        body_bytes: largest body, where somebody chose it: one such body fits in any case.
    """
    held = clients_share_bytes(MOST_HELD_BYTES, memory_bytes)
    if body_bytes is None:
        return HttpLimits(body_bytes=min(MOST_BODY_BYTES, held), held_bytes=held)
    return HttpLimits(body_bytes=body_bytes, held_bytes=max(held, body_bytes))


class BodyLimits:
    """Middleware that bounds the body of every request, in size and in time."""

    def __init__(self, app: ASGIApp, limits: HttpLimits) -> None:
        self._app = app
        self._limits = limits
        self._held = _Held()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose body is read through the bounds."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        bounded = _BoundedBody(receive, self._limits, dict(scope["headers"]), self._held)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and not await bounded.outlast():
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        try:
            await self._app(scope, bounded.receive, answer)
        finally:
            bounded.forget()


@dataclass(slots=True)
class _Held:
    """Bytes of all bodies."""

    bytes: int = 0


class _BoundedBody:
    def __init__(
        self, receive: Receive, limits: HttpLimits, headers: Mapping[bytes, bytes], held: _Held
    ) -> None:
        self._held = held
        self._receive = receive
        self._limits = limits
        self._declared = _declared_length(headers)
        self._received = 0
        self._complete = not (self._declared or b"transfer-encoding" in headers)
        # Reading is what invites such a body.
        self._uninvited = b"expect" in headers
        self._until = asyncio.get_running_loop().time() + limits.body_seconds

    async def receive(self) -> Message:
        """Return the next message.

        Raises:
            BodyTooLarge: the body is, or says that it will be, larger than allowed.
            BodyTooSlow: it has not arrived in time.
            QueueFull: all bodies together are as large as this gateway holds.
        """
        if self._complete:
            return await self._receive()
        self._check(self._declared)
        self._uninvited = False
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError as error:
            seconds = self._limits.body_seconds
            raise BodyTooSlow(f"the body did not arrive within {seconds:g} s") from error
        size = len(message.get("body", b""))
        self._received += size
        self._held.bytes += size
        self._complete = not message.get("more_body", False)
        self._check(self._received)
        return message

    async def outlast(self) -> bool:
        """Drop what still comes of the body, for a while; return whether that was all of it."""
        if self._complete or self._uninvited:
            return self._complete
        now = asyncio.get_running_loop().time()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(self._until, now + LINGER_SECONDS)):
                while not self._complete:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        return False
                    self._complete = not message.get("more_body", False)
        return self._complete

    def forget(self) -> None:
        """Note that the body is gone."""
        self._held.bytes -= self._received
        self._received = 0

    def _check(self, size: int) -> None:
        most = self._limits.body_bytes
        if size > most:
            raise BodyTooLarge(f"a body may have {most} bytes; upload larger media by gRPC")
        if self._held.bytes > self._limits.held_bytes:
            raise QueueFull("other requests fill the memory for bodies")


def _declared_length(headers: Mapping[bytes, bytes]) -> int:
    value = headers.get(b"content-length", b"")
    return int(value) if value.isdigit() else 0
