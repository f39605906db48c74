"""Selecting rows of columns, whatever kind of array they are.

torch is never imported here: numpy arrays and torch tensors index alike, and the wire's own tensors
are cut by bytes, so that bfloat16 needs no detour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from omni_wire.tensor import ArrayLike, Tensor

Columns = Mapping[str, ArrayLike]


def select_rows(columns: Columns, indices: Sequence[int]) -> dict[str, ArrayLike]:
    """Return the rows `indices` (ascending) of every column, in order.

    Neighbouring rows and rows of wire tensors are views; anything else is copied.
    """
    return {name: _rows(column, indices) for name, column in columns.items()}


def _rows(column: ArrayLike, indices: Sequence[int]) -> ArrayLike:
    if isinstance(column, Tensor):
        return _tensor_rows(column, indices)
    first, last = indices[0], indices[-1]
    array = cast("Any", column)
    rows = array[first : last + 1] if last - first == len(indices) - 1 else array[list(indices)]
    return cast("ArrayLike", rows)


def _tensor_rows(column: Tensor, indices: Sequence[int]) -> Tensor:
    data = column.contiguous()
    row_bytes = column.nbytes // column.shape[0]
    parts = tuple(data[index * row_bytes : (index + 1) * row_bytes] for index in indices)
    return Tensor(column.dtype, (len(indices), *column.shape[1:]), parts)
