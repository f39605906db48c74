"""Bytes that are posted and not released, per edge and per request.

While the edge holds little, no request can be over its share, so nothing is counted per request: at
64 rows a step, counting costs more than the rest of the bookkeeping. The counts are made up when
the edge fills, from what is unreleased then, and dropped when it has emptied.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from omni_wire.errors import WireFormatError
from omni_wire.identity import RequestKey

Content = TypeVar("Content")

# What a message costs beside its bytes: the objects that hold it at either end.
MESSAGE_BYTES = 256

# A request may hold one part in this many of the credit that is left.
_SHARE_OF_FREE = 4


@dataclass(frozen=True, slots=True)
class Credits:
    """Limits in bytes, as in EdgeOptions."""

    edge: int
    request: int
    bulk: int
    # Unreleased bytes below which no single request can be over its share: with `t` of them it
    # holds `t` at most, and may hold a quarter of `edge - t`.
    relaxed: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "relaxed", min(self.request, self.edge // (_SHARE_OF_FREE + 1)))

    def smaller(self, other: Credits) -> Credits:
        """The smaller of each pair."""
        return Credits(
            edge=min(self.edge, other.edge),
            request=min(self.request, other.request),
            bulk=min(self.bulk, other.bulk),
        )


def message_cost(header_bytes: int, payload_bytes: int) -> int:
    """Bytes that both sides charge for a message; `header_bytes` without the sequence number."""
    return header_bytes + payload_bytes + MESSAGE_BYTES


# Not frozen: freezing doubles what making one costs, and each message makes one. The same holds for
# Send and Encoded.
@dataclass(slots=True, eq=False)
class Item(Generic[Content]):
    """Something posted.

    Attributes:
        keys: the requests it is about, one per row; none for messages about the process itself.
        cost: bytes charged until it is released.
        parts: number of envelopes it takes.
        bulk: whether it is charged to the bulk credit; such an item is about one request.
        content: whatever the driver needs to send it.
        released: rows whose share came back ahead of the others, if any did.
    """

    keys: tuple[RequestKey, ...]
    cost: int
    parts: int
    bulk: bool
    content: Content
    released: set[int] | None = None

    @property
    def share(self) -> int:
        """Bytes charged to each of its requests."""
        return self.cost // max(1, len(self.keys))


class Accounts(Generic[Content]):
    """Charges of one direction of a session."""

    def __init__(self, credits: Credits) -> None:
        self.credits = credits
        self.total = 0
        self.bulk = 0
        # Everything charged, and of that what was sent, by the sequence number of its first part.
        # What costs nothing is never released, so nothing is kept of it.
        self._charged: set[Item[Content]] = set()
        self._sent: dict[int, Item[Content]] = {}
        self._counts: dict[RequestKey, int] | None = None

    @property
    def unreleased_bytes(self) -> int:
        """Bytes charged and not released."""
        return self.total + self.bulk

    @property
    def relaxed(self) -> bool:
        """Whether every request may send, without looking at any."""
        return self._counts is None and self.total < self.credits.relaxed

    def admits(self, key: RequestKey) -> bool:
        """Whether a request has credit. One with nothing unreleased needs only some on the edge."""
        if self.relaxed:
            return True
        held = self._counted().get(key, 0)
        free = self.credits.edge - self.total
        if not held:
            return free > 0
        return held < min(self.credits.request, free // _SHARE_OF_FREE)

    def admits_bulk(self, cost: int) -> bool:
        """Whether a payload in parts may start; one larger than the credit may when alone."""
        return not self.bulk or self.bulk + cost <= self.credits.bulk

    def charge(self, item: Item[Content]) -> None:
        """An item may leave."""
        if not item.cost:
            return
        self._charged.add(item)
        if item.bulk:
            self.bulk += item.cost
            return
        self.total += item.cost
        if self._counts is not None:
            self._count(self._counts, item)

    def sent(self, sequence: int, item: Item[Content]) -> None:
        """An item got its sequence number."""
        if item.cost:
            self._sent[sequence] = item

    def release(self, sequence: int) -> None:
        """An item's credit came back; a second time changes nothing."""
        item = self._sent.pop(sequence, None)
        if item is not None:
            self.refund(item)

    def release_row(self, sequence: int, row: int) -> None:
        """One row's credit came back ahead of the others; a second time changes nothing.

        Raises:
            WireFormatError: the message has no such row.
        """
        item = self._sent.get(sequence)
        if item is None:
            return
        if row >= len(item.keys):
            raise WireFormatError(f"row {row} released of a message with {len(item.keys)}")
        if item.released is None:
            item.released = set()
        if row in item.released:
            return
        item.released.add(row)
        self.total -= item.share
        if self._counts is not None and item.share:
            self._discount(self._counts, item.keys[row], item.share)

    def refund(self, item: Item[Content]) -> None:
        """Take back what is left of an item's charge."""
        self._charged.discard(item)
        if item.bulk:
            self.bulk -= item.cost
            return
        rows = item.released or ()
        self.total -= item.cost - item.share * len(rows)
        if self._counts is None or not item.share:
            return
        for row, key in enumerate(item.keys):
            if row not in rows:
                self._discount(self._counts, key, item.share)
        if self.total <= self.credits.relaxed // 2:
            self._counts = None

    def keep_only(self, received: int, unreleased: Collection[int]) -> None:
        """Release all that was sent up to `received` and is not among `unreleased`."""
        gone = [number for number in self._sent if number <= received and number not in unreleased]
        for number in gone:
            self.release(number)

    def _counted(self) -> dict[RequestKey, int]:
        if self._counts is None:
            self._counts = {}
            for item in self._charged:
                if not item.bulk:
                    self._count(self._counts, item)
        return self._counts

    @staticmethod
    def _count(counts: dict[RequestKey, int], item: Item[Content]) -> None:
        share, released = item.share, item.released or ()
        if not share:
            return
        for row, key in enumerate(item.keys):
            if row not in released:
                counts[key] = counts.get(key, 0) + share

    @staticmethod
    def _discount(counts: dict[RequestKey, int], key: RequestKey, share: int) -> None:
        left = counts[key] - share
        if left:
            counts[key] = left
        else:
            del counts[key]
