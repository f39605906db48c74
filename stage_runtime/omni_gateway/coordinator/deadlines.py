"""Moments at which requests have to be looked at again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

SLACK = 64
"""Entries of finished requests that are tolerated before the heap is cleaned."""


@dataclass(slots=True)
class Deadlines:
    """A heap of (moment, request id, epoch) whose dead entries never outnumber the live ones by
    more than a slack.

    Finished requests are not searched for in the heap; entries are dropped when their moment comes,
    or all at once when they are the majority.
    """

    _heap: list[tuple[float, str, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, moment: float, request_id: str, epoch: int) -> None:
        """Have a request looked at when the moment has come."""
        heappush(self._heap, (moment, request_id, epoch))

    def next(self) -> float | None:
        """Return the earliest moment, possibly one of a finished request."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> list[tuple[str, int]]:
        """Remove and return what has come due."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            _, request_id, epoch = heappop(self._heap)
            found.append((request_id, epoch))
        return found

    def clean(self, live_count: int, is_live: Callable[[str, int], bool]) -> None:
        """Drop entries of finished requests once they are the majority."""
        if len(self._heap) <= SLACK + 4 * live_count:
            return
        self._heap = [entry for entry in self._heap if is_live(entry[1], entry[2])]
        heapify(self._heap)
