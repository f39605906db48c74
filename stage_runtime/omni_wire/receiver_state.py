"""The receiving half of a session as a state machine: what is new, what is dropped, what is owed.

It sees sequence numbers, request keys and costs, never contents. Each message is delivered once, in
the order it was sent; what belongs to an aborted request, or to an attempt that has been replaced,
is released at once instead. A sender that exceeds the credit it was given is a broken peer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from omni_wire.accounts import Credits
from omni_wire.errors import WireFormatError
from omni_wire.identity import RequestKey

_NONE: Sequence[int] = ()
# Aborted requests remembered, oldest forgotten first: far more than can be on their way.
TOMBSTONES = 10_000


class EnvelopeMissing(Exception):
    """One was lost or overtaken, which no stream does: another stream will bring it again."""


@dataclass(frozen=True, slots=True)
class Owed:
    """Instruction: tell the sender this.

    Attributes:
        received: last sequence number received.
        released: messages whose credit is returned, by sequence number.
        rows: single rows whose credit is returned, as sequence number and row.
    """

    received: int
    released: tuple[int, ...]
    rows: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """What the sender must know when a new stream begins; the acknowledgements it missed are in it.

    Attributes:
        received: last sequence number received.
        unreleased: messages received and not released, by sequence number.
        rows: rows of those that are released.
    """

    received: int
    unreleased: tuple[int, ...]
    rows: tuple[tuple[int, int], ...]


# A message delivered and not wholly released: its requests and its cost in bytes.
_Held: TypeAlias = tuple[tuple[RequestKey, ...], int]


class ReceiverState:
    """What one side has received, and what of it the other side still has to hear."""

    def __init__(self, credits: Credits, slack: int) -> None:
        """`slack` is what honest senders may exceed the edge's credit by: one message."""
        self._credits = credits
        self._slack = slack
        self._received = 0
        self._held: dict[int, _Held] = {}
        self._bulk: dict[int, _Held] = {}
        # Rows released on their own, of messages that are still held.
        self._released_rows: dict[int, set[int]] = {}
        self._held_bytes = 0
        self._bulk_bytes = 0
        self._released: list[int] = []
        # Of those, what the sender has not been told, by message.
        self._rows: dict[int, list[int]] = {}
        # Bytes released since the last acknowledgement.
        self.unsaid_bytes = 0
        self._acknowledged = 0
        # The requests of the message whose rows were released last, and their rows.
        self._numbered: tuple[RequestKey, ...] = ()
        self._row_numbers: dict[RequestKey, int] = {}
        # The last requests found to be neither aborted nor replaced: steps repeat them.
        self._clean: tuple[RequestKey, ...] | None = None
        self._tombstones: OrderedDict[RequestKey, None] = OrderedDict()
        self._epochs: OrderedDict[tuple[str, str], int] = OrderedDict()

    @property
    def received(self) -> int:
        """Last sequence number received."""
        return self._received

    @property
    def held_bytes(self) -> int:
        """Bytes delivered, or being put together, and not released."""
        return self._held_bytes + self._bulk_bytes

    @property
    def owes(self) -> bool:
        """Whether there is anything to acknowledge."""
        return self._received > self._acknowledged or bool(self._released or self._rows)

    def accept(self, sequence: int) -> bool:
        """Whether an envelope is new; False for one seen before a stream broke.

        Raises:
            EnvelopeMissing: one before it has not come.
        """
        if sequence <= self._received:
            return False
        if sequence != self._received + 1:
            raise EnvelopeMissing(f"envelope {sequence} after {self._received}")
        self._received = sequence
        return True

    def admit(self, sequence: int, keys: tuple[RequestKey, ...], cost: int) -> Sequence[int]:
        """A message arrived whole: charge it and return the rows that must not be delivered.

        Those rows are released at once; all of a message's rows means that it is to be dropped.

        Raises:
            WireFormatError: the sender has exceeded its credit.
        """
        if self._held_bytes + cost > self._credits.edge + self._slack:
            raise WireFormatError(f"credit of {self._credits.edge} bytes exceeded")
        self._held[sequence] = (keys, cost)
        self._held_bytes += cost
        return self._drop_stale(sequence, keys) if keys is not self._clean else _NONE

    def begin_bulk(self, sequence: int, keys: tuple[RequestKey, ...], cost: int) -> None:
        """The first part of a larger message arrived: charge all of it.

        Raises:
            WireFormatError: the sender has exceeded its credit.
        """
        if self._bulk_bytes and self._bulk_bytes + cost > self._credits.bulk:
            raise WireFormatError(f"bulk credit of {self._credits.bulk} bytes exceeded")
        self._bulk[sequence] = (keys, cost)
        self._bulk_bytes += cost

    def end_bulk(self, sequence: int) -> Sequence[int]:
        """The last part arrived; returns rows as `admit` does."""
        return self._drop_stale(sequence, self._bulk[sequence][0])

    def _drop_stale(self, sequence: int, keys: tuple[RequestKey, ...]) -> list[int]:
        stale = [row for row, key in enumerate(keys) if self._stale(key)]
        for row in stale:
            self.release(sequence, keys[row])
        if not stale:
            self._clean = keys
        return stale

    def _stale(self, key: RequestKey) -> bool:
        if key.epoch or self._epochs:
            newest = self._epochs.get(key[:2], 0)
            if key.epoch < newest:
                return True
            if key.epoch > newest:
                self._see_epoch(key)
        return key in self._tombstones

    def _see_epoch(self, key: RequestKey) -> None:
        self._clean = None
        self._epochs[key[:2]] = key.epoch
        if len(self._epochs) > TOMBSTONES:
            self._epochs.popitem(last=False)

    def bury(self, key: RequestKey) -> None:
        """A request was aborted: what comes later is dropped."""
        self._clean = None
        self._tombstones[key] = None
        if len(self._tombstones) > TOMBSTONES:
            self._tombstones.popitem(last=False)

    def release(self, sequence: int, key: RequestKey | None = None) -> None:
        """The receiver is done with a message, or with one request's row of it. Idempotent."""
        whole = sequence in self._held
        messages = self._held if whole else self._bulk
        held = messages.get(sequence)
        if held is None or (key is not None and not self._release_row(sequence, held, key)):
            return
        del messages[sequence]
        keys, cost = held
        rows = self._released_rows.pop(sequence, ()) if self._released_rows else ()
        left = cost - cost // max(1, len(keys)) * len(rows)
        if whole:
            self._held_bytes -= left
        else:
            self._bulk_bytes -= left
        # That all of it is released says so of each row.
        self._rows.pop(sequence, None)
        self._released.append(sequence)
        self.unsaid_bytes += left

    def _release_row(self, sequence: int, held: _Held, key: RequestKey) -> bool:
        """Release one request's row; True when it was the last one, which nothing here counts."""
        keys, cost = held
        if len(keys) == 1:
            return True
        rows = self._released_rows.setdefault(sequence, set())
        row = self._row_of(keys, key)
        if row is None or row in rows:
            return False
        if len(rows) + 1 == len(keys):
            return True
        rows.add(row)
        share = cost // len(keys)
        self._held_bytes -= share
        self.unsaid_bytes += share
        self._rows.setdefault(sequence, []).append(row)
        return False

    def _row_of(self, keys: tuple[RequestKey, ...], key: RequestKey) -> int | None:
        """Which row is a request's; looked up in a table, for steps repeat their requests."""
        if keys is not self._numbered:
            self._numbered = keys
            self._row_numbers = {each: row for row, each in enumerate(keys)}
        return self._row_numbers.get(key)

    def take_owed(self) -> Owed:
        """What to acknowledge now; it counts as said."""
        rows = tuple([(sequence, row) for sequence, rows in self._rows.items() for row in rows])
        owed = Owed(self._received, tuple(self._released), rows)
        self._acknowledged = self._received
        self._released.clear()
        self._rows.clear()
        self.unsaid_bytes = 0
        return owed

    def resume(self) -> Resume:
        """What to say when a new stream begins; it replaces every acknowledgement before it."""
        self.take_owed()
        rows = [(number, row) for number, rows in self._released_rows.items() for row in rows]
        return Resume(self._received, (*self._held, *self._bulk), tuple(rows))
