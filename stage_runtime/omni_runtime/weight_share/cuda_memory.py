"""Weights in a GPU's memory: CUDA IPC handles, taken apart into plain data.

The fields are those of torch's own storage sharing. A handle is made for one follower each, because
torch counts who holds it. Memory of a GPU cannot be mapped read-only, so here only the audit of an
architecture says that nothing writes to it. A mapping dies with the process that made it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

CUDA = "cuda"
_FIELDS = (
    "handle",
    "bytes",
    "offset",
    "counter",
    "counter_offset",
    "event",
    "event_needs_sync",
)


class CudaMemory:
    """Storages where they are; the leader keeps them for as long as it lives."""

    descriptors: tuple[int, ...] = ()

    def __init__(self, storages: Mapping[int, torch.UntypedStorage]) -> None:
        self._storages = storages

    def places(self) -> list[dict[str, Any]]:
        """Return handles for one more follower."""
        return [
            {"memory": CUDA, "storage": number, **_handle(storage)}
            for number, storage in self._storages.items()
        ]

    def close(self) -> None:
        """Nothing: the storages belong to the model."""


def open_cuda(
    places: Sequence[Mapping[str, Any]], device: torch.device
) -> dict[int, torch.UntypedStorage]:
    """Open handles on a device, which must be the leader's card; return storages by number."""
    torch.cuda.init()
    index = torch.cuda.current_device() if device.index is None else device.index
    opened: dict[int, torch.UntypedStorage] = {}
    for place in places:
        if not place["bytes"]:
            opened[place["storage"]] = torch.UntypedStorage(0, device=device)
            continue
        fields = [_from_plain(place[name]) for name in _FIELDS]
        with torch.cuda.device(index):
            opened[place["storage"]] = torch.UntypedStorage._new_shared_cuda(index, *fields)
    return opened


def _handle(storage: torch.UntypedStorage) -> dict[str, Any]:
    with torch.cuda.device(storage.device):
        _, *fields = storage._share_cuda_()
    return {name: _plain(field) for name, field in zip(_FIELDS, fields, strict=True)}


def _plain(field: bytes | float | None) -> dict[str, str] | float | None:
    return {"hex": field.hex()} if isinstance(field, bytes) else field


def _from_plain(field: dict[str, str] | float | None) -> bytes | float | None:
    return bytes.fromhex(field["hex"]) if isinstance(field, dict) else field
