"""Tensors keep their values across numpy, torch and the wire's own form."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from omni_wire.arrays import as_tensor, take_rows
from omni_wire.tensor import DType, NumpyArray, Tensor
from omni_wire.trees import to_numpy

NUMPY_DTYPES = ("?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8")

arrays = st.sampled_from(NUMPY_DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0))
)


@given(arrays)
def test_numpy_arrays_come_back_as_they_were(array: NumpyArray) -> None:
    tensor = Tensor.of_numpy(array)
    assert tensor.nbytes == array.nbytes == sum(map(len, tensor.parts))
    back = tensor.numpy()
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@given(arrays)
def test_any_memory_layout_is_accepted(array: NumpyArray) -> None:
    for other in (
        array.T,
        array[::-1] if array.ndim else array,
        array.astype(array.dtype.newbyteorder(">")),
    ):
        np.testing.assert_array_equal(Tensor.of_numpy(other).numpy(), other)


def test_a_view_shares_the_sender_s_memory_and_cannot_change_it() -> None:
    array = np.arange(4)
    tensor = Tensor.of_numpy(array)
    array[0] = 9
    assert tensor.numpy()[0] == 9
    with pytest.raises(ValueError, match="read-only"):
        tensor.numpy()[0] = 1


def test_a_tensor_in_pieces_is_joined_when_asked_for() -> None:
    raw = np.arange(8, dtype=np.int32).tobytes()
    pieces = tuple(memoryview(raw)[begin:end] for begin, end in ((0, 5), (5, 6), (6, 32)))
    tensor = Tensor(DType.INT32, (2, 4), pieces)
    np.testing.assert_array_equal(tensor.numpy(), np.arange(8).reshape(2, 4))


@given(hnp.arrays(np.float32, hnp.array_shapes(), elements=st.floats(width=32)))
def test_bfloat16_is_the_nearest_there_is(values: NumpyArray) -> None:
    rounded = Tensor.bfloat16(values).numpy()
    np.testing.assert_array_equal(np.isnan(rounded), np.isnan(values))
    finite = np.isfinite(values) & (np.abs(values) < 3.38e38)
    error = np.abs(rounded[finite] - values[finite])
    # Half of the last of eight bits; below the normal range, half of the smallest step.
    assert np.all(error <= np.maximum(np.abs(values[finite]) * 2.0**-8, 2.0**-134))
    np.testing.assert_array_equal(Tensor.bfloat16(rounded).numpy(), rounded)


@pytest.mark.parametrize("dtype", ["c8", "O", "U4", "M8[s]"])
def test_a_dtype_the_wire_lacks_is_refused(dtype: str) -> None:
    with pytest.raises(TypeError, match="cannot be sent"):
        Tensor.of_numpy(np.zeros(2, dtype))


def test_bits_are_only_for_two_byte_elements() -> None:
    with pytest.raises(TypeError, match="16-bit"):
        Tensor.of_numpy(np.zeros(2, np.float32)).bits()


@given(st.lists(st.integers(0, 4), max_size=5))
def test_rows_can_be_taken_from_any_array(indices: list[int]) -> None:
    array = np.arange(20, dtype=np.int16).reshape(5, 2, 2)
    for form in (array, Tensor.of_numpy(array)):
        np.testing.assert_array_equal(to_numpy(take_rows(form, indices)), array[indices])


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(TypeError, match=r"no array|no torch tensor"):
        as_tensor(object())  # type: ignore[arg-type]


def test_using_the_wire_does_not_load_torch() -> None:
    program = (
        "import sys, numpy\n"
        "from omni_wire import grpc_edge, stage_server, control_link, control_server, server\n"
        "from omni_wire.trees import to_numpy, to_proto, from_proto\n"
        "to_numpy(from_proto(to_proto({'a': numpy.zeros(3)})))\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
