"""What each layer of the vocoder must remember of a stream between two pieces of it.

Everything lives in tensors with one row per slot, allocated once: a step gathers the rows of its
streams and writes them back, so memory is bounded and a CUDA graph could replay it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

Tensors: TypeAlias = "Mapping[str, torch.Tensor]"


@dataclass(frozen=True, slots=True)
class Memory:
    """Shape of what one layer remembers of one stream, such as `(channels, columns)`."""

    name: str
    shape: tuple[int, ...]


class StreamStates:
    """The memory of all streams.

    Args:
        memories: what the layers remember.
        slots: streams that may be open at once.
    """

    def __init__(
        self, memories: Sequence[Memory], slots: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.slots = slots
        self._device = device
        self._tensors = {
            memory.name: torch.zeros((slots, *memory.shape), device=device, dtype=dtype)
            for memory in memories
        }

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return sum(tensor.nbytes for tensor in self._tensors.values())

    def step(self, slots: Sequence[int], frames_before: Sequence[int]) -> History:
        """Return the memory of the streams of one step; all of them new, or none of them.

        Args:
            slots: slot of each stream.
            frames_before: frames that each stream has decoded so far.
        """
        begins = frames_before[0] == 0
        assert all((before == 0) == begins for before in frames_before), "a mixed step"
        return History(
            self._tensors,
            torch.tensor(slots, device=self._device),
            torch.tensor(frames_before, device=self._device),
            begins,
        )


class History:
    """The memory of the streams in one step, oldest columns first.

    Attributes:
        frames_before: int64 `[rows]`, frames decoded before this step.
        begins: whether these are the streams' first frames, before which there is nothing.
    """

    def __init__(
        self, tensors: Tensors, slots: torch.Tensor, frames_before: torch.Tensor, begins: bool
    ) -> None:
        self.frames_before = frames_before
        self.begins = begins
        self._tensors = tensors
        self._slots = slots

    def extend(self, name: str, new: torch.Tensor) -> torch.Tensor:
        """Return what `name` remembers followed by `new` on the last axis, and remember the end.

        A stream that begins remembers zeros, which is what causal padding is.
        """
        memory = self._tensors[name]
        columns = memory.shape[-1]
        if self.begins:
            past = new.new_zeros((*new.shape[:-1], columns))
        else:
            past = memory.index_select(0, self._slots)
        whole = torch.cat((past, new), -1)
        memory.index_copy_(0, self._slots, whole[..., whole.shape[-1] - columns :])
        return whole
