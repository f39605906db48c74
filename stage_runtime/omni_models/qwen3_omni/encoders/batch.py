"""One batch of requests through a tower: equal media once, known media not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import torch

from omni_models.qwen3_omni.encoders.cache import EmbeddingCache
from omni_wire.errors import ServiceError, StageFailed
from omni_wire.messages import Payload, Tree

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Item(Generic[T]):
    """One picture, video or sound.

    Attributes:
        kind: `image`, `video` or `audio`.
        digest: equal for items with equal embeddings.
        content: what the tower encodes.
        cost: in the unit of the tower's limit.
    """

    kind: str
    digest: str
    content: T
    cost: int


class MediaEncoder(Generic[T]):
    """Encodes the media of whole payloads (`omni_runtime.simple_scheduler.BatchCompute`).

    Args:
        read: yields the items of a payload's data, in prompt order within a kind. What it raises
            fails that request alone.
        encode: embeddings `[rows, width]` of each item, on any device.
        max_cost: highest sum of costs that goes through the tower at once; an item above it goes
            alone.
    """

    def __init__(
        self,
        read: Callable[[Mapping[str, Tree]], Iterable[Item[T]]],
        encode: Callable[[Sequence[T]], Sequence[torch.Tensor]],
        cache: EmbeddingCache,
        max_cost: int,
    ) -> None:
        self._read = read
        self._encode = encode
        self._cache = cache
        self._max_cost = max_cost

    def __call__(self, payloads: Sequence[Payload]) -> Sequence[Payload | Exception]:
        """Return each payload with its embeddings, rows of a kind in prompt order."""
        read = [self._items(payload) for payload in payloads]
        wanted = {item.digest: item for items in read if isinstance(items, list) for item in items}
        embeddings = self._embeddings(wanted)
        return [
            items if isinstance(items, Exception) else _embedded(payload, items, embeddings)
            for payload, items in zip(payloads, read, strict=True)
        ]

    def _items(self, payload: Payload) -> list[Item[T]] | Exception:
        if not isinstance(payload.data, Mapping):
            return StageFailed("the payload holds no mapping")
        try:
            return list(self._read(payload.data))
        except ServiceError as error:
            return error
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            failure = StageFailed(f"the media of the payload do not fit the encoder: {error}")
            failure.__cause__ = error
            return failure

    def _embeddings(self, wanted: Mapping[str, Item[T]]) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = {}
        for digest in wanted:
            known = self._cache.get(digest)
            if known is not None:
                found[digest] = known
        missing = [item for digest, item in wanted.items() if digest not in found]
        for batch in self._batches(missing):
            encoded = self._encode([item.content for item in batch])
            for item, embeddings in zip(batch, encoded, strict=True):
                # A copy of its own: a view would keep the whole batch alive in the cache.
                found[item.digest] = embeddings.to("cpu", copy=True)
                self._cache.put(item.digest, found[item.digest])
        return found

    def _batches(self, items: Sequence[Item[T]]) -> Iterator[list[Item[T]]]:
        batch: list[Item[T]] = []
        cost = 0
        for item in items:
            if batch and cost + item.cost > self._max_cost:
                yield batch
                batch, cost = [], 0
            batch.append(item)
            cost += item.cost
        if batch:
            yield batch


def _embedded(
    payload: Payload, items: Sequence[Item[T]], embeddings: Mapping[str, torch.Tensor]
) -> Payload:
    kinds = dict.fromkeys(item.kind for item in items)
    rows: dict[str, Tree] = {
        kind: torch.cat([embeddings[item.digest] for item in items if item.kind == kind])
        for kind in kinds
    }
    return replace(payload, data={"embeddings": rows})
