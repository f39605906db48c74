"""A tensor as the wire knows it: a dtype, a shape and the bytes where they already lie.

It belongs to neither numpy nor torch, so a gateway can forward what a stage computed without
importing torch, and bfloat16, which numpy lacks, needs no detour. Received tensors are views of the
message they came in. A tensor larger than one message stays in the pieces it arrived in until
somebody asks for one
array: whoever copies to a device copies each piece straight there and never joins them on the host.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

NumpyArray: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


@runtime_checkable
class ArrayLike(Protocol):
    """What numpy arrays, torch tensors and `Tensor` have in common."""

    @property
    def shape(self) -> Sequence[int]: ...

    @property
    def dtype(self) -> object: ...


class DType(enum.Enum):
    """Element types. The value is the number used on the wire; it never changes."""

    BOOL = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    UINT32 = 6
    INT32 = 7
    UINT64 = 8
    INT64 = 9
    FLOAT16 = 10
    BFLOAT16 = 11
    FLOAT32 = 12
    FLOAT64 = 13

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return _ITEM_BYTES[self]


_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.BOOL: np.dtype("?"),
    DType.UINT8: np.dtype("u1"),
    DType.INT8: np.dtype("i1"),
    DType.UINT16: np.dtype("<u2"),
    DType.INT16: np.dtype("<i2"),
    DType.UINT32: np.dtype("<u4"),
    DType.INT32: np.dtype("<i4"),
    DType.UINT64: np.dtype("<u8"),
    DType.INT64: np.dtype("<i8"),
    DType.FLOAT16: np.dtype("<f2"),
    DType.FLOAT32: np.dtype("<f4"),
    DType.FLOAT64: np.dtype("<f8"),
}
_ITEM_BYTES = {dtype: array.itemsize for dtype, array in _NUMPY.items()} | {DType.BFLOAT16: 2}
_BY_NUMPY = {array: dtype for dtype, array in _NUMPY.items()}
# By numpy's own numbers for types of native byte order; some types have two.
DTYPE_BY_NUMBER = {
    np.dtype(code).num: _BY_NUMPY[np.dtype(code).newbyteorder("<")]
    for code in "?bBhHiIlLqQefd"
    if sys.byteorder == "little"
}
_BITS = np.dtype("<u2")


# Not frozen, as frames are not: each column of each step makes one.
@dataclass(slots=True, eq=False)
class Tensor:
    """A read-only tensor in C order.

    Attributes:
        dtype: element type.
        shape: lengths of the dimensions; () is a scalar.
        parts: the bytes, little-endian, in one or more consecutive pieces whose borders may fall
            anywhere, even inside an element.
    """

    dtype: DType
    shape: tuple[int, ...]
    parts: tuple[memoryview, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return sum(map(len, self.parts))

    def contiguous(self) -> memoryview:
        """The bytes in one piece: a view if they lie in one already, else one copy."""
        if len(self.parts) == 1:
            return self.parts[0]
        return memoryview(b"".join(self.parts))

    def numpy(self) -> NumpyArray:
        """The tensor as a read-only numpy array; bfloat16 is widened to float32, which is exact."""
        if self.dtype is DType.BFLOAT16:
            wide = self.bits().astype(np.uint32) << np.uint32(16)
            return wide.view(np.float32)
        return np.frombuffer(self.contiguous(), _NUMPY[self.dtype]).reshape(self.shape)

    def bits(self) -> NumpyArray:
        """The raw bits of a two-byte tensor as uint16, the way numpy can hold bfloat16.

        Raises:
            TypeError: the elements are not two bytes wide.
        """
        if self.dtype.item_bytes != 2:
            raise TypeError(f"{self.dtype.name} has no 16-bit pattern")
        return np.frombuffer(self.contiguous(), _BITS).reshape(self.shape)

    @classmethod
    def of_numpy(cls, array: NumpyArray) -> Tensor:
        """A view of a numpy array; one that is not in C order or not little-endian is copied first.

        Raises:
            TypeError: a dtype the wire does not carry (complex, object, text, dates, longdouble).
        """
        dtype = _BY_NUMPY.get(array.dtype)
        if dtype is None or not array.flags.c_contiguous:
            little = array.dtype.newbyteorder("<")
            array = np.ascontiguousarray(array, little).reshape(array.shape)
            dtype = _BY_NUMPY.get(little)
        if dtype is None:
            raise TypeError(f"arrays of {array.dtype} cannot be sent")
        return cls(dtype, array.shape, (_bytes_of(array),))

    @classmethod
    def bfloat16(cls, values: NumpyArray) -> Tensor:
        """A bfloat16 tensor of float32 values, rounded to nearest even; NaN stays NaN."""
        floats = np.ascontiguousarray(values, np.float32)
        wide = floats.view(np.uint32)
        odd = (wide >> np.uint32(16)) & np.uint32(1)
        rounded = (wide + odd + np.uint32(0x7FFF)) >> np.uint32(16)
        bits = np.where(np.isnan(floats), np.uint32(0x7FC0), rounded).astype(_BITS)
        return cls(DType.BFLOAT16, values.shape, (_bytes_of(bits),))


def _bytes_of(array: NumpyArray) -> memoryview:
    """The bytes of an array in C order, as a flat read-only view."""
    if not array.size:
        return memoryview(b"")
    return array.data.cast("B").toreadonly()
