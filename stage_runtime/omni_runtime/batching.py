"""When to stop gathering a batch. Pure: time comes in as a number and nothing waits here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")

WaitFrom = Literal["first", "company"]


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What closes a batch.

    Attributes:
        max_size: most items in one batch.
        max_wait_seconds: longest an item waits for others before its batch runs.
        max_cost: highest sum of item costs, in the unit of the cost function; an item above it runs
            alone.
        wait_from: "first" waits from the first item on; "company" runs a lone item at once and
            waits only when a second one is already there.
    """

    max_size: int = 1
    max_wait_seconds: float = 0.0
    max_cost: float | None = None
    wait_from: WaitFrom = "first"

    def __post_init__(self) -> None:
        if self.max_size < 1:
            raise ValueError(f"max_size must be at least 1, got {self.max_size}")
        if self.max_wait_seconds < 0:
            raise ValueError(f"max_wait_seconds must not be negative, got {self.max_wait_seconds}")
        if self.max_cost is not None and self.max_cost <= 0:
            raise ValueError(f"max_cost must be positive, got {self.max_cost}")


@dataclass(slots=True)
class _Waiting(Generic[T]):
    item: T
    cost: float
    since: float


class BatchQueue(Generic[T]):
    """Items in order of arrival, cut into batches.

    Order is never changed for a better fit: an item that would exceed the cost bound closes the
    batch and opens the next one, so no item can starve.
    """

    def __init__(self, limits: BatchLimits, cost: Callable[[T], float] | None = None) -> None:
        self._limits = limits
        self._cost = cost
        self._waiting: deque[_Waiting[T]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, item: T, now: float) -> None:
        """Append an item that arrived at `now` (monotonic seconds). Raises what the cost function
        raises.
        """
        cost = 0.0 if self._cost is None else self._cost(item)
        self._waiting.append(_Waiting(item, cost, now))

    def remove(self, predicate: Callable[[T], bool]) -> list[T]:
        """Take out and return the items that fulfil `predicate`."""
        gone = [waiting.item for waiting in self._waiting if predicate(waiting.item)]
        if gone:
            self._waiting = deque(w for w in self._waiting if not predicate(w.item))
        return gone

    def due_at(self) -> float | None:
        """Return when the next batch is due (monotonic seconds, in the past when it is due now), or
        None.
        """
        if not self._waiting:
            return None
        first = self._waiting[0]
        size, closed = self._next_size()
        alone = size == 1 and self._limits.wait_from == "company"
        if closed or alone:
            return first.since
        return first.since + self._limits.max_wait_seconds

    def take(self, now: float, hurry: bool = False) -> list[T]:
        """Return the next batch, or an empty list while it should wait for company.

        With `hurry` nothing waits: the stage is draining and no company will come.
        """
        due_at = self.due_at()
        if due_at is None or (due_at > now and not hurry):
            return []
        size, _ = self._next_size()
        return [self._waiting.popleft().item for _ in range(size)]

    def _next_size(self) -> tuple[int, bool]:
        """Return the size of the next batch and whether nothing more could join it."""
        limits, cost = self._limits, 0.0
        for size, waiting in enumerate(self._waiting):
            cost += waiting.cost
            too_dear = limits.max_cost is not None and cost > limits.max_cost
            if size == limits.max_size or (too_dear and size > 0):
                return size, True
        size = len(self._waiting)
        dear = limits.max_cost is not None and cost >= limits.max_cost
        return size, dear or size == limits.max_size
