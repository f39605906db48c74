"""Weights in main memory: one anonymous file that nobody can write to any more.

Every process maps it read-only, the leader too, so the weights are there once, and a model that
wrote to a shared parameter would be stopped by the kernel at that instruction. The file has no
name: it is gone with the last process that maps it, and no limit of /dev/shm applies to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from omni_runtime.weight_share.errors import CannotShare

HOST = "host"
_ALIGNMENT = 64
_SEAL_FUTURE_WRITE = 0x10
"""F_SEAL_FUTURE_WRITE of Linux 5.1, which Python names from 3.14 on."""

_MADV_POPULATE_READ = 22
"""Of Linux 5.14; an older one enters pages as they are touched."""

Read = Callable[[int], torch.UntypedStorage]
Moved = Callable[[int, torch.UntypedStorage], None]


class HostMemory:
    """Storages in an anonymous file.

    Args:
        sizes: bytes of each storage, by number.
        read: returns a storage; each is asked for once.
        moved: called with each number and the storage that takes its place, so that one can be
            freed before the next is copied.

    Raises:
        CannotShare: this system has no such files.
    """

    def __init__(self, sizes: Mapping[int, int], read: Read, moved: Moved) -> None:
        if sys.platform != "linux":
            raise CannotShare(f"weights in main memory are shared on Linux, not on {sys.platform}")
        self._places: list[dict[str, Any]] = []
        end = 0
        for number, size in sizes.items():
            self._places.append({"memory": HOST, "storage": number, "offset": end, "bytes": size})
            end += -(-size // _ALIGNMENT) * _ALIGNMENT
        writable = os.memfd_create("weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(writable, end)
            # What is opened read-only can never be mapped writable, whatever is sealed when.
            self._descriptor = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
            mapped = _mapped(self._descriptor, end)
            storages = _storages(mapped, self._places)
            for written in self._places:
                number = written["storage"]
                _write(writable, read(number), written["offset"])
                moved(number, storages[number])
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | _SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL
            fcntl.fcntl(writable, fcntl.F_ADD_SEALS, seals)
            _populate(mapped)
        finally:
            os.close(writable)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The file, read-only."""
        return (self._descriptor,)

    def places(self) -> list[dict[str, Any]]:
        """Return where in the file each storage lies."""
        return self._places

    def close(self) -> None:
        """Close the file; what maps it stays."""
        os.close(self._descriptor)


def open_host(
    places: Sequence[Mapping[str, Any]], descriptor: int
) -> dict[int, torch.UntypedStorage]:
    """Map a file and return its storages by number; they keep it mapped."""
    mapped = _mapped(descriptor, os.fstat(descriptor).st_size)
    _populate(mapped)
    return _storages(mapped, places)


def _mapped(descriptor: int, size: int) -> mmap.mmap | None:
    return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if size else None


def _populate(mapped: mmap.mmap | None) -> None:
    """Enter all pages into this process's tables, instead of one by one under its first requests.

    Not before they are written: that would make every one of them at once, empty.
    """
    if mapped is not None:
        with contextlib.suppress(OSError):
            mapped.madvise(_MADV_POPULATE_READ)


def _storages(
    mapped: mmap.mmap | None, places: Sequence[Mapping[str, Any]]
) -> dict[int, torch.UntypedStorage]:
    with warnings.catch_warnings():
        # That it cannot be written to is what is wanted.
        warnings.filterwarnings("ignore", "The given buffer is not writable")
        return {place["storage"]: _storage(mapped, place) for place in places}


def _storage(mapped: mmap.mmap | None, place: Mapping[str, Any]) -> torch.UntypedStorage:
    if mapped is None or not place["bytes"]:
        return torch.UntypedStorage(0)
    whole = torch.frombuffer(
        mapped, dtype=torch.uint8, count=place["bytes"], offset=place["offset"]
    )
    return whole.untyped_storage()


def _write(descriptor: int, storage: torch.UntypedStorage, offset: int) -> None:
    if not storage.nbytes():
        return
    content = memoryview(torch.empty(0, dtype=torch.uint8).set_(storage).numpy())
    while content:
        written = os.pwrite(descriptor, content, offset)
        content, offset = content[written:], offset + written
