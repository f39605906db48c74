"""From the frame of one scheduler step to chunks of single requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from omni_gateway.coordinator.streams import Output
from omni_wire.identity import RequestKey, stage_of
from omni_wire.messages import OutputFrame, Tree
from omni_wire.tensor import ArrayLike, NumpyArray, Tensor

ROW_OVERHEAD_BYTES = 256
"""What an unread chunk costs beside its data, so that empty chunks are not free."""

LEAF_BYTES = 16
"""What a number or a null in a tree counts for."""


class FrameRelease(Protocol):
    """Returns the credit of one row, or of the whole frame."""

    def __call__(self, key: RequestKey | None = None) -> None: ...


def outputs_of(
    frame: OutputFrame, sender: int, release: FrameRelease
) -> Iterator[tuple[RequestKey, Output]]:
    """Yield the chunk of every row with the request it belongs to.

    Rows of a shared frame are copied: a chunk that nobody reads would otherwise keep the whole
    frame, other requests' rows included, in memory.
    """
    stage = stage_of(frame.source)
    shared = len(frame.rows) > 1
    overhead = ROW_OVERHEAD_BYTES + tree_bytes(frame.meta)
    for index, (key, chunk_id) in enumerate(frame.rows):
        columns = {name: _row(array, index, shared) for name, array in frame.columns.items()}
        size = overhead + sum(map(_array_bytes, columns.values()))
        yield (
            key,
            Output(
                stage=stage,
                sender=sender,
                modality=frame.modality,
                chunk_id=chunk_id,
                columns=columns,
                meta=frame.meta,
                size_bytes=size,
                release=partial(release, key),
            ),
        )


def tree_bytes(tree: Tree) -> int:
    """Return roughly how many bytes a tree keeps in memory."""
    match tree:
        case str() | bytes():
            return LEAF_BYTES + len(tree)
        case Mapping():
            return sum(LEAF_BYTES + len(key) + tree_bytes(value) for key, value in tree.items())
        case None | bool() | int() | float():
            return LEAF_BYTES
        case Sequence():
            return LEAF_BYTES + sum(map(tree_bytes, tree))
        case _:
            return LEAF_BYTES + _array_bytes(tree)


def _row(column: ArrayLike, index: int, shared: bool) -> ArrayLike:
    if not isinstance(column, Tensor):
        array: NumpyArray = column[index]  # type: ignore[index]  # numpy and torch alike
        return array
    size = column.nbytes // column.shape[0]
    data = column.contiguous()[index * size : (index + 1) * size]
    return Tensor(column.dtype, column.shape[1:], (memoryview(bytes(data)) if shared else data,))


def _array_bytes(array: ArrayLike) -> int:
    nbytes: int = getattr(array, "nbytes", 0)
    return nbytes
