"""Torch tensors to the wire's tensors and back. Nothing but this module imports torch.
does.

Received tensors share memory with the message they came in, so they are read-only by agreement:
torch has no read-only tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from omni_wire.arrays import as_tensor, map_arrays
from omni_wire.messages import Tree
from omni_wire.tensor import ArrayLike, DType, NumpyArray, Tensor

_TORCH: dict[DType, torch.dtype] = {
    DType.BOOL: torch.bool,
    DType.UINT8: torch.uint8,
    DType.INT8: torch.int8,
    DType.UINT16: torch.uint16,
    DType.INT16: torch.int16,
    DType.UINT32: torch.uint32,
    DType.INT32: torch.int32,
    DType.UINT64: torch.uint64,
    DType.INT64: torch.int64,
    DType.FLOAT16: torch.float16,
    DType.BFLOAT16: torch.bfloat16,
    DType.FLOAT32: torch.float32,
    DType.FLOAT64: torch.float64,
}
_BY_TORCH = {torch_dtype: dtype for dtype, torch_dtype in _TORCH.items()}


def of_torch(array: ArrayLike) -> Tensor:
    """A view of a torch tensor; one on a device or not in C order is copied first.

    The copy from a device waits for the work that makes the tensor, so schedulers bring results to
    the host themselves, where they can overlap it.

    Raises:
        TypeError: no torch tensor, or a dtype the wire does not carry.
    """
    if not isinstance(array, torch.Tensor):
        raise TypeError(f"{type(array).__name__} is no torch tensor")
    dtype = _BY_TORCH.get(array.dtype)
    if dtype is None:
        raise TypeError(f"torch tensors of {array.dtype} cannot be sent")
    host = array.detach().cpu().contiguous()
    if not host.numel():
        return Tensor(dtype, tuple(host.shape), (memoryview(b""),))
    flat = host.reshape(-1).view(torch.uint8).numpy()
    return Tensor(dtype, tuple(host.shape), (flat.data.toreadonly(),))


def to_torch(tree: Tree, device: torch.device | str | None = None) -> Tree:
    """The same tree with every array as a torch tensor, on `device` where it is given."""
    return map_arrays(tree, lambda array: array_to_torch(array, device))


def array_to_torch(array: ArrayLike, device: torch.device | str | None = None) -> torch.Tensor:
    """One array as a torch tensor.

    A tensor in one piece is a view on the CPU. One in several pieces is copied piece by piece to
    where it shall be, so that a device receives it without a detour over a second host buffer.
    """
    if isinstance(array, torch.Tensor):
        return array if device is None else array.to(device)
    tensor = as_tensor(array)
    if len(tensor.parts) == 1:
        view = _view(tensor)
        return view if device is None else view.to(device)
    joined = torch.empty(tensor.shape, dtype=_TORCH[tensor.dtype], device=device)
    flat = joined.reshape(-1).view(torch.uint8)
    begin = 0
    for part in tensor.parts:
        flat[begin : begin + len(part)].copy_(torch.from_numpy(_writable(part)))
        begin += len(part)
    return joined


def _view(tensor: Tensor) -> torch.Tensor:
    data = tensor.parts[0]
    dtype = _TORCH[tensor.dtype]
    if not len(data):
        return torch.empty(tensor.shape, dtype=dtype)
    array = _writable(data)
    if array.ctypes.data % tensor.dtype.item_bytes:
        array = array.copy()
    return torch.from_numpy(array).view(dtype).reshape(tensor.shape)


class _Writable:
    """Presents a read-only buffer as a writable array, for torch warns about any other."""

    def __init__(self, data: memoryview) -> None:
        interface: dict[str, Any] = dict(np.frombuffer(data, np.uint8).__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        self.data = data


def _writable(data: memoryview) -> NumpyArray:
    return np.asarray(_Writable(data))
