"""The payload: the bytes of all tensors of one message, written without copies and read as views.

Writing collects views of the senders' memory, in order; they are joined once, when the envelope is
made. Reading cuts views out of the pieces that arrived. Nothing here trusts an offset or a length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from omni_wire.errors import FrameTooLarge, WireFormatError
from omni_wire.tensor import DType, Tensor

# Tensors begin at multiples of this, so that no element straddles a part and none lies unaligned.
ALIGNMENT = 16
MAX_DIMENSIONS = 16
# Beyond what any machine holds, yet far from the overflows of those who multiply in 64 bits.
_MAX_ELEMENTS = 1 << 48
_ZEROS = bytes(ALIGNMENT)


class PayloadWriter:
    """Collects the tensors of one message."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.views: list[memoryview | bytes] = []
        self.size = 0

    def add(self, pieces: Sequence[memoryview | bytes], length: int) -> int:
        """Append pieces of `length` bytes together; returns the offset where they begin.

        Raises:
            FrameTooLarge: the payload would exceed the wire's limit.
        """
        gap = -self.size % ALIGNMENT
        offset = self.size + gap
        if offset + length > self._max_bytes:
            raise FrameTooLarge(f"payload exceeds {self._max_bytes} bytes")
        if gap:
            self.views.append(_ZEROS[:gap])
        self.views.extend(pieces)
        self.size = offset + length
        return offset


class PayloadReader:
    """Cuts tensors and blobs out of a payload that arrived in one or more pieces."""

    def __init__(self, pieces: Sequence[memoryview]) -> None:
        self._pieces = pieces
        self._size = sum(map(len, pieces))
        # Blobs are copied out. Together they cannot be longer than the payload in an honest
        # message, however often a hostile one names the same bytes.
        self._copy_budget = self._size

    def tensor(self, dtype: DType, shape: tuple[int, ...], offset: int) -> Tensor:
        """A view of the elements that begin at `offset`.

        Raises:
            WireFormatError: the shape is absurd, or the elements lie outside the payload.
        """
        return Tensor(dtype, shape, self.cut(offset, tensor_bytes(dtype, shape)))

    def cut(self, offset: int, length: int) -> tuple[memoryview, ...]:
        """Views of `length` bytes at `offset`, one per piece they lie in.

        Raises:
            WireFormatError: they lie outside the payload.
        """
        if offset + length > self._size:
            raise WireFormatError(f"{length} bytes at {offset} exceed {self._size}")
        if len(self._pieces) == 1:
            return (self._pieces[0][offset : offset + length],)
        return self._cut_across(offset, length) if length else (_EMPTY,)

    def blob(self, offset: int, length: int) -> bytes:
        """A copy of `length` bytes at `offset`.

        Raises:
            WireFormatError: they lie outside the payload, or all blobs together exceed it.
        """
        self._copy_budget -= length
        if self._copy_budget < 0:
            raise WireFormatError("blobs that overlap or exceed the payload")
        return b"".join(self.cut(offset, length))

    def _cut_across(self, offset: int, length: int) -> tuple[memoryview, ...]:
        cut = []
        for piece in self._pieces:
            if offset < len(piece):
                cut.append(piece[offset : offset + length])
                length -= len(cut[-1])
                if not length:
                    break
            offset = max(0, offset - len(piece))
        return tuple(cut)


_EMPTY = memoryview(b"")


def tensor_bytes(dtype: DType, shape: tuple[int, ...]) -> int:
    """Bytes of all elements of a tensor with this shape.

    Raises:
        WireFormatError: too many dimensions, or too long ones, even where one is 0.
    """
    if len(shape) > MAX_DIMENSIONS:
        raise WireFormatError(f"{len(shape)} dimensions exceed {MAX_DIMENSIONS}")
    if math.prod(length or 1 for length in shape) > _MAX_ELEMENTS:
        raise WireFormatError(f"shape {shape} is too large")
    return math.prod(shape) * dtype.item_bytes
