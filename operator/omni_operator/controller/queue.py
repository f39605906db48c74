"""A queue of keys: one worker per key at a time, many changes of a key are one turn.

A key that is added while it is being worked on gets another turn afterwards. Failures wait longer
each time, up to a limit, with jitter so that a thousand failures do not come back together.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds to wait after failures in a row: doubling from `first` to `limit`, halved at most by
    jitter."""

    first: float = 0.2
    limit: float = 120.0

    def seconds(self, failures: int, draw: random.Random) -> float:
        """Return the wait after the n-th failure in a row, from 1."""
        longest = min(self.limit, self.first * 2.0 ** min(failures - 1, 30))
        return longest * (0.5 + draw.random() / 2)


class KeyedQueue(Generic[Key]):
    """Keys that are due, and keys that will be. It holds each key once, so it is bounded by the
    number of objects.

    Args:
        backoff: waits after failures.
        draw: source of jitter.
    """

    def __init__(self, backoff: Backoff | None = None, draw: random.Random | None = None) -> None:
        self._backoff = backoff or Backoff()
        self._draw = draw or random.Random()
        self._due: dict[Key, float] = {}
        self._schedule: list[tuple[float, int, Key]] = []
        self._entries = 0
        self._working: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._not_before: dict[Key, float] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Number of keys that wait, due or not."""
        return len(self._due)

    @property
    def working(self) -> dict[Key, float]:
        """Keys being worked on, and since when (loop time)."""
        return dict(self._working)

    def ready(self) -> int:
        """Number of keys that are due and wait for a worker."""
        now = asyncio.get_running_loop().time()
        return sum(1 for key, at in self._due.items() if at <= now and key not in self._working)

    def oldest_ready_seconds(self) -> float:
        """How long the key that has been due longest has been waiting, 0 when none is."""
        now = asyncio.get_running_loop().time()
        waits = (now - at for key, at in self._due.items() if key not in self._working)
        return max(0.0, *waits, 0.0)

    def add(self, key: Key, seconds: float = 0.0) -> None:
        """Give a key a turn, at the latest after `seconds`; an earlier turn stays.

        A key that failed keeps its wait: what failed is elsewhere as a rule, and its own writes
        must not call it back at once.
        """
        at = asyncio.get_running_loop().time() + seconds
        at = max(at, self._not_before.get(key, at))
        known = self._due.get(key)
        if known is not None and known <= at:
            return
        self._due[key] = at
        self._entries += 1
        heapq.heappush(self._schedule, (at, self._entries, key))
        self._changed.set()

    def hurry(self, key: Key) -> None:
        """Give a key a turn now, whatever failed before: a person has just changed it."""
        self._not_before.pop(key, None)
        self.add(key)

    async def get(self) -> Key:
        """Return the next key that is due and that nobody works on; end the turn with `done`."""
        loop = asyncio.get_running_loop()
        while True:
            key, wait = self._next(loop.time())
            if key is not None:
                self._working[key] = loop.time()
                return key
            self._changed.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def done(self, key: Key, *, failed: bool = False, retry_after: float | None = None) -> None:
        """End a turn. After a failure the key comes back by itself.

        Args:
            retry_after: seconds the API server asked to wait, if it did.
        """
        del self._working[key]
        if failed:
            self._failures[key] = self._failures.get(key, 0) + 1
            wait = self._backoff.seconds(self._failures[key], self._draw)
            wait = max(wait, retry_after or 0.0)
            self._not_before[key] = asyncio.get_running_loop().time() + wait
            self._due.pop(key, None)
            self.add(key, wait)
        else:
            self._failures.pop(key, None)
            self._not_before.pop(key, None)
        self._changed.set()

    def failures(self, key: Key) -> int:
        """Return the number of failures of a key in a row."""
        return self._failures.get(key, 0)

    def _next(self, now: float) -> tuple[Key | None, float | None]:
        """Return a key that may be worked on, or how long until one may, None for unknown."""
        held: list[tuple[float, int, Key]] = []
        found: Key | None = None
        wait: float | None = None
        while self._schedule:
            at, number, key = self._schedule[0]
            if self._due.get(key) != at:
                heapq.heappop(self._schedule)
                continue
            if at > now:
                wait = at - now
                break
            heapq.heappop(self._schedule)
            if key in self._working:
                held.append((at, number, key))
                continue
            del self._due[key]
            found = key
            break
        for entry in held:
            heapq.heappush(self._schedule, entry)
        return found, wait
