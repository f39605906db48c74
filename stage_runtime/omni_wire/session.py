"""A session: two processes that exchange numbered messages over one stream at a time.

A session outlives the streams that carry it: `carry` runs over one of them and ends when that
breaks, and what was not received goes over the next.
"""

from __future__ import annotations

import asyncio
import secrets

from omni_wire.decoder import parse_header
from omni_wire.edge import Deliver, EdgeOptions
from omni_wire.envelope import scan
from omni_wire.handshake import Peer, decode_ack, encode_ack, encode_close
from omni_wire.inbox import Inbox
from omni_wire.outbox import OnStall, Outbox
from omni_wire.receiver_state import EnvelopeMissing
from omni_wire.streams import ByteStream, StreamBroken


class Session:
    """One end of a session, on the event loop's thread."""

    def __init__(self, options: EdgeOptions, deliver: Deliver, on_stall: OnStall) -> None:
        self.options = options
        self.number = secrets.randbits(64)
        # Done when there may be something to write; an Event costs twice as much each time.
        self._work: asyncio.Future[None] | None = None
        self.outbox = Outbox(options, on_stall, self._wake)
        self.inbox = Inbox(options, deliver, self._owes)
        self._acknowledge_now = False
        self._finishing = False
        self._timer: asyncio.TimerHandle | None = None

    async def carry(self, stream: ByteStream, peer: Peer) -> None:
        """Exchange messages over a stream whose handshake is done, until the dialling side closes.

        Raises:
            StreamBroken: the stream is gone; another may carry the session on.
            ServiceError: the session cannot go on.
        """
        self.outbox.connected(peer)
        reader = asyncio.create_task(self._read(stream))
        writer = asyncio.create_task(self._write(stream))
        tasks = {reader, writer}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if writer.done():
                writer.result()
                # It has said Close; the other side ends the stream.
                await asyncio.wait((reader,))
        finally:
            self.outbox.disconnected()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        reader.result()

    async def _read(self, stream: ByteStream) -> None:
        while (data := await stream.read()) is not None:
            if self._receive(data):
                return
            # A message kept while the next one is read costs it another, colder buffer.
            del data
        raise StreamBroken("the peer ended the stream")

    def _receive(self, data: bytes) -> bool:
        """Take in one envelope; True if it closes the session."""
        try:
            if self.inbox.repeat(data):
                return False
        except EnvelopeMissing as error:
            raise StreamBroken(str(error)) from error
        raw, payload = scan(data, self.options.max_header_bytes)
        header = parse_header(raw)
        if header.HasField("ack"):
            self.outbox.acknowledged(decode_ack(header.ack))
            return False
        if header.HasField("close"):
            return True
        try:
            self.inbox.receive(header, len(raw), payload)
        except EnvelopeMissing as error:
            raise StreamBroken(str(error)) from error
        return False

    async def _write(self, stream: ByteStream) -> None:
        while not self._finishing:
            data = self._next()
            if data is None:
                self._work = asyncio.get_running_loop().create_future()
                await self._work
            else:
                await stream.write(data)
                del data
        await stream.write(encode_close())

    def finish(self) -> None:
        """Say Close on the stream that carries the session now; nothing more is sent."""
        self._finishing = True
        self._wake()

    def _wake(self) -> None:
        """Let the writer look for something to write."""
        if self._work is not None:
            if not self._work.done():
                self._work.set_result(None)
            self._work = None

    def _next(self) -> bytes | None:
        if self._acknowledge_now:
            self._acknowledge_now = False
            owed = self.inbox.take_owed()
            if owed is not None:
                return encode_ack(*owed)
        return self.outbox.take()

    def _owes(self, urgent: bool) -> None:
        """Acknowledge now, or soon together with what comes until then."""
        if urgent:
            self._acknowledge()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.options.acknowledge_seconds, self._acknowledge)

    def _acknowledge(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._acknowledge_now = True
        self._wake()

    def close(self) -> None:
        """The session is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.outbox.close()
