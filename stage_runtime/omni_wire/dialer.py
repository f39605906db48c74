"""Keeps a session connected: dials, shakes hands, and dials again when the stream breaks."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Protocol

from grpc import aio

from omni_wire.credentials import ChannelOptions, Credentials, open_channel
from omni_wire.edge import EdgeOptions
from omni_wire.errors import InstanceLost, ServiceError
from omni_wire.handshake import Peer, expect
from omni_wire.session import Session
from omni_wire.streams import ByteStream, ClientStream, StreamBroken
from omni_wire.v1.session_pb2 import Accept

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0
_HANDSHAKE_SECONDS = 5.0
_GOODBYE_SECONDS = 1.0

WrapStream = Callable[[ByteStream], ByteStream]


class Greeting(Protocol):
    """How one kind of session begins on the dialling side."""

    def connect(self) -> bytes:
        """The Connect envelope of the next stream."""

    def accepted(self, accept: Accept) -> Peer:
        """Take in the answer. Raises ServiceError when the session cannot go on with it."""


def channel_options(options: EdgeOptions) -> ChannelOptions:
    """gRPC settings of both ends: explicit message limits, and a broken peer is noticed."""
    return [
        ("grpc.max_receive_message_length", options.envelope_bytes),
        ("grpc.max_send_message_length", options.envelope_bytes),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 1_000),
    ]


class Dialer:
    """The dialling side of one session."""

    def __init__(
        self,
        target: str,
        method: str,
        credentials: Credentials,
        session: Session,
        greeting: Greeting,
        wrap: WrapStream | None = None,
    ) -> None:
        """`method` is the full gRPC name of a stream of envelopes both ways.

        `wrap` puts something between session and stream; tests inject faults with it.
        """
        self._target = target
        self._method = method
        self._credentials = credentials
        self._session = session
        self._greeting = greeting
        self._wrap = wrap
        self._closing = asyncio.Event()
        self._heard = False
        self._connected = False
        self._broken_since = 0.0
        self._patience_seconds = session.options.reconnect_seconds
        self._attempt = 0

    async def run(self) -> ServiceError | None:
        """Carry the session until it is lost; returns why, or None after `close`."""
        carrying = asyncio.create_task(self._carry_on())
        closing = asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait((carrying, closing), return_when=asyncio.FIRST_COMPLETED)
            if not carrying.done():
                await self._say_goodbye(carrying)
            return carrying.result() if carrying.done() else None
        finally:
            closing.cancel()
            carrying.cancel()
            await asyncio.wait((carrying, closing))
            self._session.close()

    def close(self) -> None:
        """Make `run` return."""
        self._closing.set()

    async def _say_goodbye(self, carrying: asyncio.Task[ServiceError | None]) -> None:
        """Let the other side see an end, not a break, if it is there to see it."""
        if self._heard:
            self._session.finish()
            await asyncio.wait((carrying,), timeout=_GOODBYE_SECONDS)

    async def _carry_on(self) -> ServiceError | None:
        loop = asyncio.get_running_loop()
        options = self._session.options
        self._broken_since = loop.time()
        async with open_channel(self._target, self._credentials, channel_options(options)) as line:
            while not self._closing.is_set():
                cause = await self._carry_once(line)
                if isinstance(cause, ServiceError):
                    return cause
                pause = _pause(self._attempt)
                self._attempt += 1
                if loop.time() + pause > self._broken_since + self._patience_seconds:
                    return InstanceLost(f"{self._target} cannot be reached: {cause}")
                logger.debug("stream broke target=%s cause=%s", self._target, cause)
                await asyncio.sleep(pause)
        return None

    async def _carry_once(self, line: aio.Channel) -> Exception:
        """Carry the session over one stream; returns why it ended."""
        loop = asyncio.get_running_loop()
        call: aio.StreamStreamCall[bytes, bytes] = line.stream_stream(self._method)()
        stream = ClientStream(call)
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                peer = await self._greet(stream)
            self._connected = True
            self._attempt = 0
            if peer.patience_seconds is not None:
                self._patience_seconds = peer.patience_seconds
            await self._session.carry(self._wrap(stream) if self._wrap else stream, peer)
        except (ServiceError, StreamBroken, TimeoutError) as error:
            return error
        else:
            return StreamBroken("the peer closed the session")
        finally:
            self._heard = False
            if self._connected:
                self._connected = False
                self._broken_since = loop.time()
            call.cancel()

    async def _greet(self, stream: ByteStream) -> Peer:
        await stream.write(self._greeting.connect())
        self._heard = True
        return self._greeting.accepted(expect(await stream.read(), "accept").accept)


def _pause(attempt: int) -> float:
    """Seconds before the next attempt: doubling, and spread so that peers do not dial in step."""
    longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * (1 << min(attempt, 10)))
    return longest * random.uniform(0.5, 1.0)
