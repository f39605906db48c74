"""Streams that misbehave on command: what a network does to envelopes, without a network's chance.

A `FaultyLink` wraps every stream a session opens. Its faults are counted in envelopes, so a test
says exactly where the stream breaks, and the same faults meet in-memory and gRPC streams alike.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from omni_wire.decoder import parse_header
from omni_wire.envelope import scan
from omni_wire.streams import ByteStream, StreamBroken

_MAX_HEADER_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class Faults:
    """What happens to the envelopes written over one link, numbered from 0 across its streams.

    Attributes:
        cut_before: the stream breaks instead of carrying these; the next stream is numbered on.
        cut_after: the stream breaks after these arrived, before the sender can learn that.
        duplicate: arrive twice.
        swap: arrive after the one that follows them on the same stream.
        lose_acknowledgements: nothing that comes back is seen, handshakes apart.
    """

    cut_before: Collection[int] = field(default=())
    cut_after: Collection[int] = field(default=())
    duplicate: Collection[int] = field(default=())
    swap: Collection[int] = field(default=())
    lose_acknowledgements: bool = False


NO_FAULTS = Faults()


class FaultyLink:
    """Wraps the streams of one session; pass `wrap` to whoever dials.

    Attributes:
        streams: number of streams opened so far.
        written: number of envelopes the sender wrote, handshakes apart.
    """

    def __init__(self, faults: Faults = NO_FAULTS) -> None:
        self.faults = faults
        self.streams = 0
        self.written = 0

    def wrap(self, stream: ByteStream) -> ByteStream:
        self.streams += 1
        return _FaultyStream(stream, self)


class _FaultyStream:
    def __init__(self, stream: ByteStream, link: FaultyLink) -> None:
        self._stream = stream
        self._link = link
        self._swapped: bytes | None = None
        self._broken = asyncio.Event()

    async def read(self) -> bytes | None:
        while True:
            data = await self._read_or_break()
            if data is None or not self._link.faults.lose_acknowledgements or not _is_ack(data):
                return data

    async def _read_or_break(self) -> bytes | None:
        reading = asyncio.ensure_future(self._stream.read())
        breaking = asyncio.ensure_future(self._broken.wait())
        try:
            await asyncio.wait((reading, breaking), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                return reading.result()
            raise StreamBroken("cut by the test")
        finally:
            breaking.cancel()
            reading.cancel()
            await asyncio.wait((breaking, reading))

    async def write(self, data: bytes) -> None:
        faults, number = self._link.faults, self._link.written
        self._link.written += 1
        if number in faults.cut_before:
            self._break()
        if number in faults.swap:
            self._swapped = data
            return
        for _ in range(2 if number in faults.duplicate else 1):
            await self._stream.write(data)
        if self._swapped is not None:
            swapped, self._swapped = self._swapped, None
            await self._stream.write(swapped)
        if number in faults.cut_after:
            self._break()

    def _break(self) -> None:
        self._broken.set()
        raise StreamBroken("cut by the test")


def _is_ack(data: bytes) -> bool:
    return parse_header(scan(data, _MAX_HEADER_BYTES)[0]).HasField("ack")


class MemoryStream:
    """One end of a stream inside this process; `pair` makes both."""

    def __init__(self, incoming: deque[bytes | None], outgoing: deque[bytes | None]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self.arrived = asyncio.Event()
        self.other: MemoryStream = self

    async def read(self) -> bytes | None:
        while not self._incoming:
            self.arrived.clear()
            await self.arrived.wait()
        data = self._incoming.popleft()
        if data is None:
            # What has ended stays ended.
            self._incoming.append(None)
        return data

    async def write(self, data: bytes) -> None:
        if self._outgoing and self._outgoing[-1] is None:
            raise StreamBroken("the other end is gone")
        self._outgoing.append(data)
        self.other.arrived.set()
        await asyncio.sleep(0)

    def end(self) -> None:
        """Nothing more comes from this end."""
        self._outgoing.append(None)
        self.other.arrived.set()


def pair() -> tuple[MemoryStream, MemoryStream]:
    """Both ends of a stream."""
    there: deque[bytes | None] = deque()
    back: deque[bytes | None] = deque()
    first, second = MemoryStream(back, there), MemoryStream(there, back)
    first.other, second.other = second, first
    return first, second


def positions(count: int) -> Sequence[int]:
    """A few places among `count` envelopes: the ends and the middle."""
    return sorted({0, 1, count // 2, count - 1})
