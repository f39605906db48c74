"""Embeddings of media seen lately, so that the same picture is not encoded twice."""

from __future__ import annotations

from collections import OrderedDict

import torch


class EmbeddingCache:
    """Keeps the embeddings used last, on the host.

    Args:
        max_entries: most media items kept; 0 keeps none.
        max_bytes: most bytes kept; an item larger than that is not kept at all.
    """

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: OrderedDict[str, torch.Tensor] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, digest: str) -> torch.Tensor | None:
        """Return the embeddings of an item, None when they are not kept."""
        found = self._entries.get(digest)
        if found is not None:
            self._entries.move_to_end(digest)
        return found

    def put(self, digest: str, embeddings: torch.Tensor) -> None:
        """Keep the embeddings of an item and forget those unused for longest."""
        if embeddings.nbytes > self._max_bytes or digest in self._entries:
            return
        self._entries[digest] = embeddings
        self.nbytes += embeddings.nbytes
        while len(self._entries) > self._max_entries or self.nbytes > self._max_bytes:
            _, forgotten = self._entries.popitem(last=False)
            self.nbytes -= forgotten.nbytes
