"""Torch tensors to the wire and back, in one piece and in several."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import itertools

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from omni_wire.arrays import as_tensor
from omni_wire.tensor import DType, Tensor
from omni_wire.torch_end import array_to_torch, of_torch, to_torch
from omni_wire.trees import from_proto, to_numpy, to_proto

DTYPES = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")

tensors = st.builds(
    lambda name, shape, seed: torch.from_numpy(
        np.random.default_rng(seed).integers(0, 2, shape)
    ).to(getattr(torch, name)),
    st.sampled_from(DTYPES + FLOATS),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.integers(0, 99),
)


@given(tensors)
def test_every_dtype_and_shape_comes_back(value: torch.Tensor) -> None:
    back = to_torch(from_proto(to_proto({"x": [value]})))
    assert isinstance(back, dict)
    assert back["x"][0].dtype == value.dtype
    assert torch.equal(back["x"][0], value)


def test_strides_gradients_and_scalars_are_no_obstacle() -> None:
    value = torch.arange(6.0, requires_grad=True).reshape(2, 3).T
    assert torch.equal(array_to_torch(of_torch(value)), value)
    assert torch.equal(array_to_torch(as_tensor(torch.tensor(3))), torch.tensor(3))


def test_bfloat16_means_the_same_at_both_ends() -> None:
    value = torch.tensor([1.0, -3.1415926, 1e-30, float("inf")]).to(torch.bfloat16)
    sent = of_torch(value)
    assert sent.dtype is DType.BFLOAT16
    np.testing.assert_array_equal(sent.numpy(), value.float().numpy())
    assert torch.equal(array_to_torch(Tensor.bfloat16(value.float().numpy())), value)


@given(st.lists(st.integers(1, 39), unique=True, max_size=4), st.sampled_from([None, "cpu"]))
def test_pieces_are_joined_where_the_tensor_shall_be(cuts: list[int], device: str | None) -> None:
    raw = memoryview(np.arange(10, dtype=np.float32).tobytes())
    borders = [0, *sorted(cuts), 40]
    pieces = tuple(raw[a:b] for a, b in itertools.pairwise(borders))
    joined = array_to_torch(Tensor(DType.FLOAT32, (2, 5), pieces), device)
    assert torch.equal(joined, torch.arange(10.0).reshape(2, 5))


def test_an_unaligned_piece_is_usable() -> None:
    raw = memoryview(b"\0" + np.arange(3, dtype=np.float64).tobytes())[1:]
    assert torch.equal(
        array_to_torch(Tensor(DType.FLOAT64, (3,), (raw,))), torch.arange(3, dtype=torch.float64)
    )


def test_torch_tensors_become_numpy_arrays_too() -> None:
    tree = to_numpy({"x": torch.ones(2, dtype=torch.bfloat16)})
    np.testing.assert_equal(tree, {"x": np.ones(2, np.float32)})


def test_what_the_wire_lacks_is_refused() -> None:
    with pytest.raises(TypeError, match="complex64"):
        of_torch(torch.zeros(1, dtype=torch.complex64))
