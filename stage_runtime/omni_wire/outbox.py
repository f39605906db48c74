"""The sending half of a session: messages in, envelopes out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from omni_wire import rows
from omni_wire.accounts import Item
from omni_wire.edge import EdgeOptions
from omni_wire.encoded import Encoded
from omni_wire.encoder import Encoder
from omni_wire.handshake import Acknowledgement, Peer
from omni_wire.identity import RequestKey
from omni_wire.messages import (
    FRAMES,
    Abort,
    Drain,
    Draining,
    Message,
    OutputFrame,
    Ready,
    Stats,
    StepFrame,
    keys_of,
)
from omni_wire.posted import item_of, shared_item_of
from omni_wire.sender_state import SenderState
from omni_wire.shared_arena import SharedArena

OnStall = Callable[[RequestKey, bool], None]

# Messages that a full edge must not hold up: small, few, and consumed as they arrive.
_FREE_OF_CHARGE = (Abort, Ready, Stats, Draining, Drain)
# The same by the names of their fields in Header.
FREE_KINDS = frozenset(("abort", "ready", "stats", "draining", "drain"))

# Smaller payloads are cheaper inside the envelope.
MIN_SHARED_BYTES = 16 * 1024


class Outbox:
    """What this side has posted and the other has not received."""

    def __init__(self, options: EdgeOptions, on_stall: OnStall, wake: Callable[[], None]) -> None:
        self._options = options
        self._on_stall = on_stall
        self._wake = wake
        self._encoder = Encoder(options.max_header_bytes, options.max_message_bytes)
        self._state: SenderState[Encoded] = SenderState(options.credits)
        # Futures of those who wait until an abort, or everything, has been received.
        self._aborts: dict[Encoded, asyncio.Future[None]] = {}
        self._numbered: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._drains: list[asyncio.Future[None]] = []
        self._closed = False
        # Bytes handed to the connection or to shared memory, what was sent again included.
        self.sent_bytes = 0
        self.arena: SharedArena | None = None

    @property
    def unreleased_bytes(self) -> int:
        """Bytes let go that the other side has not released."""
        return self._state.accounts.unreleased_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes that wait here for credit."""
        return self._state.held_bytes

    def stalled(self, key: RequestKey) -> bool:
        """Whether messages of this request wait here for credit."""
        return self._state.stalled(key)

    def post(self, message: Message) -> None:
        """Encode a message and queue it; dropped when the session is over. Raises as `Encoder`."""
        if self._closed:
            return
        if isinstance(message, FRAMES):
            blocked = self._state.blocked(keys_of(message))
            if blocked:
                for part in _apart(message, blocked):
                    self._post_frame(part)
            else:
                self._post_frame(message)
        else:
            self._post_encoded(self._encoder.encode(message), free=_is_free(message))
        if self._state.restless:
            self._report_stalls()
        self._wake()

    def _post_frame(self, frame: StepFrame | OutputFrame) -> None:
        """Post a frame, divided by rows where it is too large to travel whole."""
        encoded = self._encoder.encode(frame)
        if encoded.payload_bytes <= self._options.frame_bytes or len(encoded.keys) < 2:
            self._post_encoded(encoded)
            return
        for part in rows.divide(frame, self._options.frame_bytes):
            self._post_encoded(self._encoder.encode(part))

    def _post_encoded(self, encoded: Encoded, *, free: bool = False) -> None:
        shared = self._shared(encoded) if self.arena is not None else None
        self._state.post(shared or item_of(encoded, self._options, free=free))

    def _shared(self, encoded: Encoded) -> Item[Encoded] | None:
        """The message with its payload in shared memory, None where that does not pay or work."""
        if self.arena is None or encoded.payload_bytes < MIN_SHARED_BYTES:
            return None
        block = self.arena.place(encoded.pieces, encoded.payload_bytes)
        return shared_item_of(encoded, block, self._options) if block is not None else None

    def abort(self, message: Abort) -> asyncio.Future[None]:
        """Drop what waits for a request and post its abort ahead of everything.

        The future completes once the other side has received it, or the session is over.
        """
        received = asyncio.get_running_loop().create_future()
        if self._closed:
            received.set_result(None)
            return received
        self._give_back(self._state.drop(message.key))
        item = item_of(self._encoder.encode(message), self._options, free=True)
        self._aborts[item.content] = received
        self._state.post(item, urgent=True)
        if self._state.restless:
            self._report_stalls()
        self._wake()
        return received

    def _give_back(self, dropped: Iterable[Item[Encoded]]) -> None:
        """Free the shared blocks of messages that will not be sent."""
        for item in dropped:
            if self.arena is not None and item.content.block is not None:
                self.arena.free(item.content.block)

    async def drain(self) -> None:
        """Return once everything posted has been received, or the session is over."""
        if self._state.idle or self._closed:
            return
        drained = asyncio.get_running_loop().create_future()
        self._drains.append(drained)
        await drained

    def take(self) -> bytes | None:
        """The next envelope to send, None if there is none to send now."""
        send = self._state.take()
        if self._state.restless:
            self._report_stalls()
        if send is None:
            return None
        encoded = send.item.content
        received = self._aborts.pop(encoded, None) if self._aborts else None
        if received is not None:
            self._numbered.append((send.sequence, received))
        if self.arena is not None and encoded.block is not None:
            self.arena.sent(send.sequence, encoded.block)
            self.sent_bytes += encoded.block.size
        data = encoded.envelope(send, self._options.part_bytes)
        self.sent_bytes += len(data)
        return data

    def connected(self, peer: Peer) -> None:
        """A stream stands. Raises as `SenderState.connected`."""
        resume = peer.resume
        self._state.connected(resume.received, peer.credits, resume.unreleased, resume.rows)
        if self._state.restless:
            self._report_stalls()
        if self.arena is not None:
            self.arena.keep_only(resume.received, peer.in_use)
        self._settle()
        self._wake()

    def disconnected(self) -> None:
        """The stream broke."""
        self._state.disconnected()

    def acknowledged(self, ack: Acknowledgement) -> None:
        """The other side acknowledged. Raises WireFormatError when it lies."""
        self._state.acknowledge(ack.received, ack.released, ack.rows)
        if self._state.restless:
            self._report_stalls()
        if self.arena is not None:
            self.arena.freed(ack.freed)
        self._settle()
        self._wake()

    def close(self) -> None:
        """The session is over: nobody waits any longer, and posting does nothing."""
        self._closed = True
        numbered = [future for _, future in self._numbered]
        for future in (*self._aborts.values(), *numbered, *self._drains):
            _complete(future)
        self._aborts.clear()
        self._numbered.clear()
        self._drains.clear()
        if self.arena is not None:
            self.arena.close()
            self.arena = None

    def _settle(self) -> None:
        """Wake those whose wait has ended."""
        while self._numbered and self._numbered[0][0] <= self._state.acknowledged:
            _complete(self._numbered.popleft()[1])
        if self._drains and self._state.idle:
            for drained in self._drains:
                _complete(drained)
            self._drains.clear()

    def _report_stalls(self) -> None:
        for change in self._state.stall_changes():
            self._on_stall(change.key, change.stalled)


def _is_free(message: Message) -> bool:
    return isinstance(message, _FREE_OF_CHARGE)


def _apart(
    frame: StepFrame | OutputFrame, blocked: Sequence[int]
) -> Iterator[StepFrame | OutputFrame]:
    """The rows that may leave together, and each of those that must wait alone."""
    if len(blocked) < len(frame.rows):
        yield rows.without(frame, set(blocked))
    for row in blocked:
        yield rows.select(frame, [row])


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
