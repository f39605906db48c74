"""Rows keep their values and dtype, whichever kind of array holds them."""

from __future__ import annotations

import numpy as np
import pytest

from omni_runtime.columns import select_rows
from omni_wire.tensor import Tensor
from omni_wire.trees import to_numpy

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.mark.parametrize("indices", [[0], [1, 2], [0, 3], [0, 1, 2, 3]])
@pytest.mark.parametrize(
    "column",
    [
        pytest.param(ROWS, id="numpy"),
        pytest.param(Tensor.of_numpy(ROWS), id="wire"),
        pytest.param(Tensor.bfloat16(ROWS), id="bfloat16"),
    ],
)
def test_rows_are_selected_in_order(column: np.ndarray | Tensor, indices: list[int]) -> None:
    selected = select_rows({"x": column}, indices)["x"]
    assert selected.dtype == column.dtype
    assert np.array_equal(to_numpy(selected), ROWS[indices])  # type: ignore[arg-type]


def test_neighbours_are_not_copied() -> None:
    selected = select_rows({"x": ROWS}, [1, 2])["x"]
    assert np.shares_memory(np.asarray(selected), ROWS)
