"""Memory of requests that are over, so that what arrives late never brings one back to life."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

TOMBSTONE_LIMIT = 10_000
"""Requests remembered per table; a message later than this many endings is no longer recognised."""


class Tombstones(Generic[K, V]):
    """A bounded map that forgets its oldest entry first.

    Oldest first matters: forgetting an arbitrary one could revive a request that ended a moment
    ago.
    """

    def __init__(self, limit: int = TOMBSTONE_LIMIT) -> None:
        self._limit = limit
        self._entries: OrderedDict[K, V] = OrderedDict()

    def add(self, key: K, value: V) -> None:
        """Remember `key`; a key already present keeps its first value and its age."""
        if key in self._entries:
            return
        self._entries[key] = value
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def get(self, key: K) -> V | None:
        """Return what was remembered of `key`, or None."""
        return self._entries.get(key)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)
