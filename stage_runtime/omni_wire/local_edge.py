"""An edge inside one process: messages pass by reference, under the same credits as everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from omni_wire import rows
from omni_wire.accounts import MESSAGE_BYTES, Item
from omni_wire.arrays import bytes_of
from omni_wire.edge import DEFAULT_OPTIONS, EdgeEvents, EdgeOptions, EdgeReceiver
from omni_wire.identity import Endpoint, RequestKey
from omni_wire.messages import Abort, EdgeMessage, Payload, StepFrame, keys_of
from omni_wire.receiver_state import ReceiverState
from omni_wire.sender_state import Send, SenderState

# A busy edge lets the rest of the loop run after this many.
_MESSAGES_PER_TURN = 64


class LocalEdgeSender:
    """An EdgeSender whose receiver lives on the same event loop.

    Messages are delivered from the loop, never from inside `post`, so a receiver may post in turn.
    """

    def __init__(
        self,
        destination: Endpoint,
        receiver: EdgeReceiver,
        events: EdgeEvents,
        options: EdgeOptions = DEFAULT_OPTIONS,
    ) -> None:
        self._destination = destination
        self._receiver = receiver
        self._events = events
        self._options = options
        self._sender: SenderState[EdgeMessage] = SenderState(options.credits)
        # A frame is charged whole, however large, so it may exceed what is left.
        self._incoming = ReceiverState(options.credits, slack=options.edge_credit_bytes)
        self._sender.connected(0, options.credits)
        # Bytes of arrays and texts that were passed by reference.
        self.sent_bytes = 0
        self._pump_scheduled = False
        self._drained = asyncio.Event()
        self._drained.set()
        self._closed = asyncio.Event()

    @property
    def endpoint(self) -> Endpoint:
        """The instance this edge leads to."""
        return self._destination

    @property
    def unreleased_bytes(self) -> int:
        """Bytes not yet released by the receiver."""
        return self._sender.accounts.unreleased_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes that wait here for credit."""
        return self._sender.held_bytes

    def post(self, message: EdgeMessage) -> None:
        """See EdgeSender."""
        if self._closed.is_set():
            return
        blocked = self._sender.blocked(keys_of(message)) if isinstance(message, StepFrame) else []
        for part in _apart(message, blocked):
            self._sender.post(_item(part, self._options))
        if self._sender.restless:
            self._report_stalls()
        self._schedule()

    def stalled(self, key: RequestKey) -> bool:
        """See EdgeSender."""
        return self._sender.stalled(key)

    async def abort(self, key: RequestKey, reason: str) -> None:
        """See EdgeSender. Delivery is the acknowledgement."""
        if self._closed.is_set():
            return
        self._sender.drop(key)
        self._sender.post(Item((key,), 0, 1, False, Abort(key, reason)), urgent=True)
        if self._sender.restless:
            self._report_stalls()
        self._schedule()
        await self.drain()

    def forget(self, key: RequestKey) -> None:
        """See EdgeSender. Nothing is kept per request beyond what is unreleased."""

    async def drain(self) -> None:
        """See EdgeSender."""
        await self._drained.wait()

    async def close(self) -> None:
        """See EdgeSender."""
        self._closed.set()
        self._drained.set()

    async def run(self) -> None:
        """See EdgeSender. The loop itself carries the messages; a process cannot lose itself."""
        await self._closed.wait()

    def _schedule(self) -> None:
        if self._pump_scheduled:
            return
        self._pump_scheduled = True
        self._drained.clear()
        asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Deliver what may be delivered, and settle what was released."""
        self._pump_scheduled = False
        for _ in range(_MESSAGES_PER_TURN):
            send = None if self._closed.is_set() else self._sender.take()
            if send is None:
                break
            self._deliver(send)
        if self._incoming.owes:
            owed = self._incoming.take_owed()
            self._sender.acknowledge(owed.received, owed.released, owed.rows)
            # What was released may let go of more.
            self._schedule()
        if self._sender.restless:
            self._report_stalls()
        if self._sender.idle or self._closed.is_set():
            self._drained.set()

    def _deliver(self, send: Send[EdgeMessage]) -> None:
        message, keys, cost = send.item.content, send.item.keys, send.item.cost
        self._incoming.accept(send.sequence)
        if isinstance(message, Abort):
            self._incoming.bury(message.key)
            self._receiver.deliver(message, _nothing_to_release)
            return
        self.sent_bytes += cost - MESSAGE_BYTES
        if send.item.bulk:
            self._incoming.begin_bulk(send.sequence, keys, cost)
            stale = self._incoming.end_bulk(send.sequence)
        else:
            stale = self._incoming.admit(send.sequence, keys, cost)
        if stale and len(stale) == len(keys):
            return
        if stale and isinstance(message, StepFrame):
            message = rows.without(message, set(stale))
        self._receiver.deliver(message, _Delivery(self, send.sequence))

    def release(self, sequence: int, key: RequestKey | None) -> None:
        """The receiver is done with a message, or with one request's row of it."""
        self._incoming.release(sequence, key)
        self._schedule()

    def _report_stalls(self) -> None:
        for change in self._sender.stall_changes():
            self._events.on_stall(self._destination, change.key, change.stalled)


class _Delivery:
    """The Release of one delivered message."""

    __slots__ = ("_edge", "_sequence")

    def __init__(self, edge: LocalEdgeSender, sequence: int) -> None:
        self._edge = edge
        self._sequence = sequence

    def __call__(self, key: RequestKey | None = None) -> None:
        self._edge.release(self._sequence, key)


def _nothing_to_release(key: RequestKey | None = None) -> None:
    """The Release of a message that costs no credit."""


def _item(message: EdgeMessage, options: EdgeOptions) -> Item[EdgeMessage]:
    cost = _bytes_of(message) + MESSAGE_BYTES
    keys = keys_of(message)
    bulk = len(keys) == 1 and cost > options.frame_bytes
    return Item(keys, cost, 1, bulk, message)


def _bytes_of(message: EdgeMessage) -> int:
    if isinstance(message, StepFrame):
        return sum(map(bytes_of, message.columns.values()))
    if isinstance(message, Payload):
        request = message.request
        inputs = bytes_of(request.inputs) if request is not None else 0
        return bytes_of(message.data) + inputs
    return 0


def _apart(message: EdgeMessage, blocked: Sequence[int]) -> list[EdgeMessage]:
    """The message, with the rows that must wait apart from those that need not."""
    if not blocked or not isinstance(message, StepFrame):
        return [message]
    alone: list[EdgeMessage] = [rows.select(message, [row]) for row in blocked]
    if len(blocked) == len(message.rows):
        return alone
    return [rows.without(message, set(blocked)), *alone]
