"""The rows of a frame: which request each row of its columns belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from omni_wire.identity import RequestKey


class Row(NamedTuple):
    """One request's share of a step.

    Attributes:
        chunk_id: dense from 0 per request, source and destination instance.
    """

    key: RequestKey
    chunk_id: int


class Rows(Sequence[Row]):
    """The rows of a frame as two parallel lists.

    A step of 64 requests would spend more time on making 64 `Row` objects at either end than on
    everything else, so they are made only for those who ask for them.

    Attributes:
        keys: the requests, each at most once.
        chunk_ids: as many chunk ids.
    """

    __slots__ = ("chunk_ids", "keys")

    def __init__(self, keys: tuple[RequestKey, ...], chunk_ids: Sequence[int]) -> None:
        self.keys = keys
        self.chunk_ids = chunk_ids

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Rows:
        """Any sequence of rows in this form; one that has it already is returned as it is."""
        if isinstance(rows, Rows):
            return rows
        return cls(tuple([row[0] for row in rows]), [row[1] for row in rows])

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> Rows: ...

    def __getitem__(self, index: int | slice) -> Row | Rows:
        if isinstance(index, slice):
            return Rows(self.keys[index], self.chunk_ids[index])
        return Row(self.keys[index], self.chunk_ids[index])

    def __iter__(self) -> Iterator[Row]:
        return map(Row, self.keys, self.chunk_ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rows | tuple):
            return NotImplemented
        return tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Rows({list(self)!r})"
