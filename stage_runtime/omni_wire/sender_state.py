"""The sending half of a session as a state machine: what may be sent now, and what must be kept.

Nothing here waits, reads a clock or touches a connection. Whoever drives it posts items, takes what
to send next, tells it what the other side said, and asks after each of these which stalls changed.

Three rules carry it:

- *Order.* A request's items leave in the order they were posted; between requests there is none. An
  item that may not leave waits in its request's own queue, so it delays nobody else.
- *Credit.* Everything posted counts until the other side releases it. A request may hold at most a
  quarter of what is left of the edge's credit, so requests nobody reads from shrink towards nothing
  instead of filling the edge.
- *Replay.* Everything sent is kept until acknowledged, and sent again on the next connection.

Bulk items have a credit of their own and go one at a time, their parts between the items of other
requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from omni_wire.accounts import Accounts, Credits, Item
from omni_wire.errors import InstanceLost, WireFormatError
from omni_wire.identity import RequestKey

Content = TypeVar("Content")

_NONE: Sequence[int] = ()


@dataclass(slots=True, eq=False)
class Send(Generic[Content]):
    """Instruction: send part `part` of an item under this sequence number.

    Attributes:
        first: sequence number of the item's part 0.
    """

    sequence: int
    item: Item[Content]
    part: int
    first: int


@dataclass(frozen=True, slots=True)
class StallChange:
    """Instruction: tell the producer that a request is stalled, or no longer is."""

    key: RequestKey
    stalled: bool


class SenderState(Generic[Content]):
    """What one side has posted and the other has not yet received or released."""

    def __init__(self, credits: Credits) -> None:
        self._connected = False
        self._sequence = 0
        self._acknowledged = 0
        # Items that may leave; urgent ones first.
        self._urgent: deque[Item[Content]] = deque()
        self._ready: deque[Item[Content]] = deque()
        # Items that wait for credit, or behind one that does, by request in order of arrival.
        self._held: dict[RequestKey, deque[Item[Content]]] = {}
        self._bulk: _Bulk[Content] | None = None
        self._bulk_last = False
        # Sent and not acknowledged; what of it is still to be sent again on this stream.
        self._unacknowledged: deque[Send[Content]] = deque()
        self._replay: Iterator[Send[Content]] | None = None
        # Requests last reported as stalled, and whether that may have changed.
        self._stalls: set[RequestKey] = set()
        self.restless = False
        self.accounts = Accounts[Content](credits)

    @property
    def acknowledged(self) -> int:
        """Last sequence number the other side has received."""
        return self._acknowledged

    @property
    def idle(self) -> bool:
        """Whether everything posted has been received."""
        waiting = self._urgent or self._ready or self._held or self._bulk
        return not waiting and not self._unacknowledged

    @property
    def held_bytes(self) -> int:
        """Bytes that wait for credit."""
        return sum(item.cost for queue in self._held.values() for item in queue)

    def stalled(self, key: RequestKey) -> bool:
        """Whether items of this request wait for credit."""
        return bool(self._held.get(key))

    def blocked(self, keys: Sequence[RequestKey]) -> Sequence[int]:
        """Rows of a frame about to be posted whose requests may not send now, mostly none.

        The driver posts those rows apart, one item each, and the others together.
        """
        if self.accounts.relaxed and not self._held and self._bulk is None:
            return _NONE
        return [row for row, key in enumerate(keys) if self._blocked(key)]

    def _blocked(self, key: RequestKey) -> bool:
        in_parts = self._bulk is not None and self._bulk.item.keys == (key,)
        return in_parts or key in self._held or not self.accounts.admits(key)

    def post(self, item: Item[Content], *, urgent: bool = False) -> None:
        """Add an item: one request's, one of no request, or a frame none of whose rows is blocked.

        An urgent item waits for nothing; it overtakes its own request.
        """
        if urgent or not item.keys:
            self.accounts.charge(item)
            (self._urgent if urgent else self._ready).append(item)
            return
        key = item.keys[0]
        if key in self._held:
            self._held[key].append(item)
            return
        if len(item.keys) == 1 and (item.bulk or self._blocked(key)):
            self.restless = True
            self._held[key] = deque((item,))
            self._promote_one(key)
            return
        self.accounts.charge(item)
        self._ready.append(item)

    def stall_changes(self) -> Sequence[StallChange]:
        """Requests that became stalled, or no longer are, since the last call.

        There are none unless `restless` is set.
        """
        self.restless = False
        before, self._stalls = self._stalls, set(self._held)
        changed = before ^ self._stalls
        return [StallChange(key, key in self._stalls) for key in changed]

    def _promote(self) -> None:
        """Let go of held items that may leave now, the requests taking turns."""
        progress = True
        while progress and self._held:
            progress = False
            for key in list(self._held):
                progress |= self._promote_one(key)

    def _promote_one(self, key: RequestKey) -> bool:
        queue = self._held[key]
        item = queue[0]
        behind_parts = self._bulk is not None and self._bulk.item.keys == item.keys
        if item.bulk:
            if self._bulk is not None or not self.accounts.admits_bulk(item.cost):
                return False
            self._bulk = _Bulk(item, self._ready[-1] if self._ready else None)
        elif behind_parts or not self.accounts.admits(key):
            return False
        else:
            self._ready.append(item)
        self.accounts.charge(item)
        queue.popleft()
        self.restless = True
        # Requests take turns: whoever let go of one item goes to the end of the line.
        del self._held[key]
        if queue:
            self._held[key] = queue
        return True

    def take(self) -> Send[Content] | None:
        """What to send next, None if nothing may be sent now."""
        if not self._connected:
            return None
        if self._replay is not None:
            again = next(self._replay, None)
            if again is not None:
                return again
            self._replay = None
        if self._urgent:
            return self._number(self._urgent.popleft())
        bulk = self._bulk
        if bulk is not None and bulk.after is None and not (self._bulk_last and self._ready):
            return self._take_part(bulk)
        self._bulk_last = False
        if not self._ready:
            return None
        item = self._ready.popleft()
        if bulk is not None and bulk.after is item:
            bulk.after = None
        return self._number(item)

    def _take_part(self, bulk: _Bulk[Content]) -> Send[Content]:
        self._bulk_last = True
        send = self._number(bulk.item, bulk.part, bulk.first)
        bulk.first = send.first
        bulk.part += 1
        if bulk.part == bulk.item.parts:
            self._bulk = None
            self._promote()
        return send

    def _number(self, item: Item[Content], part: int = 0, first: int = 0) -> Send[Content]:
        self._sequence += 1
        send = Send(self._sequence, item, part, first or self._sequence)
        self._unacknowledged.append(send)
        if part == 0:
            self.accounts.sent(send.sequence, item)
        return send

    def connected(
        self,
        received: int,
        credits: Credits,
        unreleased: Collection[int] = (),
        rows: Sequence[tuple[int, int]] = (),
    ) -> None:
        """A stream stands: the other side has received up to `received` and still holds these.

        From now on the smaller of each pair of its limits and ours holds.

        What it did not receive is sent again before anything new. What it received and no longer
        holds was released, though the acknowledgement that said so may have been lost; so were
        `rows` (sequence number and row) of the messages it holds.

        Raises:
            InstanceLost: it has forgotten what it once acknowledged, so nothing can be resumed.
            WireFormatError: it claims to have received what was never sent.
        """
        if received < self._acknowledged:
            raise InstanceLost("the peer has forgotten this session")
        self._forget_up_to(received)
        self.accounts.credits = self.accounts.credits.smaller(credits)
        self.accounts.keep_only(received, unreleased)
        for sequence, row in rows:
            self.accounts.release_row(sequence, row)
        self._replay = iter(tuple(self._unacknowledged))
        self._connected = True
        self._promote()

    def disconnected(self) -> None:
        """The stream broke; nothing is sent until the next one stands."""
        self._connected = False
        self._replay = None

    def acknowledge(
        self,
        received: int,
        released: Sequence[int] = (),
        rows: Sequence[tuple[int, int]] = (),
    ) -> None:
        """The other side has received up to `received`, and gives back messages and single rows.

        Raises:
            WireFormatError: it was never sent, or has no such row.
        """
        self._forget_up_to(received)
        for sequence, row in rows:
            self.accounts.release_row(sequence, row)
        for sequence in released:
            self.accounts.release(sequence)
        self._promote()

    def _forget_up_to(self, received: int) -> None:
        if received > self._sequence:
            raise WireFormatError(f"acknowledged {received}, sent {self._sequence}")
        self._acknowledged = max(self._acknowledged, received)
        while self._unacknowledged and self._unacknowledged[0].sequence <= received:
            self._unacknowledged.popleft()

    def drop(self, key: RequestKey) -> list[Item[Content]]:
        """Forget what waits here for a request that is being aborted.

        Returns the items that will not be sent. What was sent stays kept: the other side releases
        it when it sees the abort.
        """
        self.restless = True
        dropped = list(self._held.pop(key, ()))
        if self._bulk is not None and self._bulk.item.keys == (key,):
            if not self._bulk.first:
                self.accounts.refund(self._bulk.item)
                dropped.append(self._bulk.item)
            self._bulk = None
        dropped += self._drop_ready(key)
        self._promote()
        return dropped

    def _drop_ready(self, key: RequestKey) -> list[Item[Content]]:
        kept: deque[Item[Content]] = deque()
        dropped = []
        for item in self._ready:
            if item.keys != (key,):
                kept.append(item)
                continue
            self.accounts.refund(item)
            dropped.append(item)
            if self._bulk is not None and self._bulk.after is item:
                self._bulk.after = kept[-1] if kept else None
        self._ready = kept
        return dropped


class _Bulk(Generic[Content]):
    """The bulk item that is travelling; `first` is 0 until its first part is numbered.

    It was let go behind `after`, which may be of its own request, so it waits until that has left.
    """

    __slots__ = ("after", "first", "item", "part")

    def __init__(self, item: Item[Content], after: Item[Content] | None) -> None:
        self.item = item
        self.after = after
        self.part = 0
        self.first = 0
