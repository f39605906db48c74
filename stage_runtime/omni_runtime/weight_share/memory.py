"""Shared memory of either kind: storages of the CPU are moved into it, those of a GPU lie in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from omni_runtime.weight_share.cuda_memory import CUDA, CudaMemory, open_cuda
from omni_runtime.weight_share.errors import CannotShare
from omni_runtime.weight_share.host_memory import HOST, HostMemory, open_host
from omni_runtime.weight_share.module_tensors import Collected, view_of


class ModuleMemory:
    """The storages of a loaded module, where followers reach them."""

    def __init__(self, collected: Collected) -> None:
        of_host = [number for number, device in collected.devices.items() if device == "cpu"]
        self._host = HostMemory(
            {number: collected.sizes[number] for number in of_host},
            collected.storage,
            lambda number, storage: _relocate(collected, number, storage),
        )
        self._cuda = CudaMemory(
            {
                number: collected.storage(number)
                for number, device in collected.devices.items()
                if device == CUDA
            }
        )

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that a follower needs."""
        return self._host.descriptors

    def places(self) -> list[dict[str, Any]]:
        """Return how one more follower reaches each storage."""
        return [*self._host.places(), *self._cuda.places()]

    def close(self) -> None:
        """Let go of what is not the module's own."""
        self._host.close()


def open_memory(
    places: Sequence[Mapping[str, Any]], descriptors: Sequence[int], device: torch.device
) -> dict[int, torch.UntypedStorage]:
    """Return the leader's storages by number.

    Args:
        device: the leader's card as this process numbers it; of no meaning for main memory.

    Raises:
        CannotShare: a descriptor is missing.
    """
    if len(descriptors) != 1:
        raise CannotShare(f"the leader sent {len(descriptors)} descriptors of its memory, not one")
    of_host = [place for place in places if place["memory"] == HOST]
    of_cuda = [place for place in places if place["memory"] == CUDA]
    storages = open_host(of_host, descriptors[0])
    return storages | open_cuda(of_cuda, device) if of_cuda else storages


def _relocate(collected: Collected, number: int, storage: torch.UntypedStorage) -> None:
    """Lay the leader's own parameters over what was published; buffers stay its own."""
    for entry, tensor in collected.on(number):
        if not entry.private:
            tensor.data = view_of(storage, entry.layout, entry.offset)
