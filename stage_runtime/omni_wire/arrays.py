"""Arrays of any library as the wire's tensors, and trees of them as what a stage computes with.

Torch is never loaded from here: who holds a torch tensor has loaded it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

import numpy as np

from omni_wire.errors import WireFormatError
from omni_wire.messages import Tree
from omni_wire.payload import PayloadReader, PayloadWriter, tensor_bytes
from omni_wire.tensor import DTYPE_BY_NUMBER, ArrayLike, DType, NumpyArray, Tensor
from omni_wire.v1 import tensor_pb2 as pb

_DTYPES = {dtype.value: dtype for dtype in DType}
# Asked before the protocols, which cost twenty times as much to ask for.
_ARRAYS = (Tensor, np.ndarray, np.generic)
_VALUES = (bool, int, float, str, bytes)


def as_tensor(array: ArrayLike) -> Tensor:
    """Any array as a neutral tensor: a view where its layout allows.

    Raises:
        TypeError: no array the wire knows, or a dtype it does not carry.
    """
    if isinstance(array, Tensor):
        return array
    if isinstance(array, np.ndarray):
        return Tensor.of_numpy(array)
    if isinstance(array, np.generic):
        return Tensor.of_numpy(np.asarray(array))
    if "torch" in sys.modules:
        # Named as text so that nobody imports torch by importing this.
        of_torch: Callable[[ArrayLike], Tensor] = import_module("omni_wire.torch_end").of_torch
        return of_torch(array)
    raise TypeError(f"{type(array).__name__} is no array the wire knows")


def described(array: ArrayLike) -> tuple[DType, tuple[int, ...], int, Sequence[memoryview]]:
    """Dtype, shape, size in bytes and the bytes of any array, as `as_tensor`, but cheaper.

    Each step does this for each column, and the usual numpy array needs no view of bytes: its
    views have its own format, so their lengths are not in bytes.
    """
    if type(array) is np.ndarray:
        kind = array.dtype
        dtype = DTYPE_BY_NUMBER.get(kind.num) if kind.isnative else None
        if dtype is not None:
            view = array.data
            if view.nbytes and view.c_contiguous:
                return dtype, array.shape, view.nbytes, (view,)
    tensor = as_tensor(array)
    return tensor.dtype, tensor.shape, tensor.nbytes, tensor.parts


def array_to_numpy(array: ArrayLike) -> NumpyArray:
    """One array as a numpy array, without a copy where its dtype and place allow."""
    if isinstance(array, np.ndarray):
        return array
    return as_tensor(array).numpy()


def map_arrays(tree: Tree, change: Callable[[ArrayLike], ArrayLike]) -> Tree:
    """The same tree with every array replaced by what `change` returns for it.

    Raises:
        TypeError: something in it is neither a value, a container nor an array.
    """
    if isinstance(tree, _ARRAYS):
        return change(tree)
    if tree is None or isinstance(tree, _VALUES):
        return tree
    if isinstance(tree, tuple):
        return tuple([map_arrays(item, change) for item in tree])
    if isinstance(tree, list):
        return [map_arrays(item, change) for item in tree]
    if isinstance(tree, Mapping):
        return {name: map_arrays(value, change) for name, value in tree.items()}
    if isinstance(tree, ArrayLike):
        return change(tree)
    raise TypeError(f"{type(tree).__name__} is no tree")


def take_rows(array: ArrayLike, indices: Sequence[int]) -> ArrayLike:
    """The rows of an array with these indices along its first dimension, copied."""
    if isinstance(array, Tensor):
        flat = np.frombuffer(array.contiguous(), np.uint8).reshape(array.shape[0], -1)
        taken = flat[list(indices)].reshape(-1)
        shape = (len(indices), *array.shape[1:])
        return Tensor(array.dtype, shape, (taken.data.toreadonly(),))
    if isinstance(array, np.ndarray):
        return array[list(indices)]
    return take_rows(as_tensor(array), indices)


def bytes_of(tree: Tree) -> int:
    """Bytes that a tree's arrays, texts and bytes hold, near enough to charge for them."""
    if isinstance(tree, _ARRAYS):
        return int(tree.nbytes)
    if isinstance(tree, str | bytes):
        return len(tree)
    if tree is None or isinstance(tree, _VALUES):
        return 8
    if isinstance(tree, list | tuple):
        return sum(map(bytes_of, tree))
    if isinstance(tree, Mapping):
        return sum(map(bytes_of, tree.values()))
    if isinstance(tree, ArrayLike):
        return as_tensor(tree).nbytes
    return 8


def encode_tensor(array: ArrayLike, node: pb.Tensor, payload: PayloadWriter | None) -> None:
    """Describe an array in an empty `node`; its bytes go to `payload`, or inline without one.

    Raises:
        WireFormatError: a dtype the wire does not carry.
        FrameTooLarge: the payload's limit is exceeded.
    """
    try:
        tensor = as_tensor(array)
    except TypeError as error:
        raise WireFormatError(str(error)) from error
    node.dtype = pb.DType.ValueType(tensor.dtype.value)
    node.shape.extend(tensor.shape)
    if payload is None:
        node.data = b"".join(tensor.parts)
    else:
        node.offset = payload.add(tensor.parts, tensor.nbytes)


def dtype_of(node: pb.Tensor) -> DType:
    """The element type of a described tensor.

    Raises:
        WireFormatError: an unknown one.
    """
    dtype = _DTYPES.get(node.dtype)
    if dtype is None:
        raise WireFormatError(f"unknown dtype {node.dtype}")
    return dtype


def decode_tensor(node: pb.Tensor, payload: PayloadReader | None) -> Tensor:
    """The tensor that `node` describes, as a view of `payload` or of the node's own bytes.

    Raises:
        WireFormatError: an unknown dtype, a wrong length, or a place outside the payload.
    """
    dtype = dtype_of(node)
    shape = tuple(node.shape)
    if payload is not None:
        if node.HasField("data"):
            raise WireFormatError("tensor bytes inside the header")
        return payload.tensor(dtype, shape, node.offset)
    data = memoryview(node.data)
    if node.HasField("offset") or len(data) != tensor_bytes(dtype, shape):
        raise WireFormatError(f"tensor of shape {shape} with {len(data)} bytes")
    return Tensor(dtype, shape, (data,))
