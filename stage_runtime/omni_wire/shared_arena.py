"""Payloads in memory that two processes of one host share.

The sender owns a file in a directory both can see, copies payloads into blocks of it and sends
where they lie; the receiver maps the file and uses them there. A block is in use until the last
view of it is gone at the receiver, which says so with its acknowledgements. When no block is free,
or the receiver could not map the file, payloads travel inside the envelopes as between hosts.

The file has its full size from the start, for a shared memory file system that runs out of space
kills whoever touches the missing page.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import re
import secrets
import stat
import weakref
from bisect import insort
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from omni_wire.errors import WireFormatError

SHARED_MEMORY = Path("/dev/shm")
_NAME = re.compile(r"omni-[0-9a-f]{32}")
_NONCE_BYTES = 16
# Blocks begin on cache lines; the first holds the nonce.
_BLOCK_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Offer:
    """A file that a sender offers to share, as in SharedSegment of session.proto."""

    name: str
    size: int
    nonce: bytes


@dataclass(frozen=True, slots=True, order=True)
class Block:
    """A stretch of the file, in bytes."""

    offset: int
    size: int


class SharedArena:
    """The sender's end."""

    def __init__(self, directory: Path, size: int) -> None:
        """Create the file.

        Raises:
            OSError: the directory is missing, not writable, or has not `size` bytes left.
        """
        self._path = directory / f"omni-{secrets.token_hex(16)}"
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
            self._map = mmap.mmap(descriptor, size)
        except OSError:
            self._path.unlink()
            raise
        finally:
            os.close(descriptor)
        self.offer = Offer(self._path.name, size, secrets.token_bytes(_NONCE_BYTES))
        self._map[:_NONCE_BYTES] = self.offer.nonce
        self._holes = [Block(_BLOCK_ALIGNMENT, size - _BLOCK_ALIGNMENT)]
        self._in_use: dict[int, Block] = {}
        self.attached = False

    def attach(self) -> None:
        """The receiver has mapped the file, so its name is needed no longer."""
        self.attached = True
        self._path.unlink(missing_ok=True)

    def place(self, pieces: Sequence[memoryview | bytes], length: int) -> Block | None:
        """Copy a payload into a free block; None when there is none."""
        if not self.attached:
            return None
        size = length + -length % _BLOCK_ALIGNMENT
        hole = next((hole for hole in self._holes if hole.size >= size), None)
        if hole is None:
            return None
        self._holes.remove(hole)
        if hole.size > size:
            insort(self._holes, Block(hole.offset + size, hole.size - size))
        begin = hole.offset
        for piece in pieces:
            flat = memoryview(piece).cast("B")
            self._map[begin : begin + len(flat)] = flat
            begin += len(flat)
        return Block(hole.offset, size)

    def sent(self, sequence: int, block: Block) -> None:
        """The block's message got its sequence number."""
        self._in_use[sequence] = block

    def freed(self, sequences: Collection[int]) -> None:
        """The receiver reads these messages' blocks no more."""
        for sequence in sequences:
            block = self._in_use.pop(sequence, None)
            if block is not None:
                self.free(block)

    def keep_only(self, received: int, in_use: Collection[int]) -> None:
        """Free the blocks of all messages up to `received` that are not among `in_use`."""
        self.freed([n for n in self._in_use if n <= received and n not in in_use])

    def free(self, block: Block) -> None:
        """Take back a block, joining it with the holes beside it."""
        insort(self._holes, block)
        joined = [self._holes[0]]
        for hole in self._holes[1:]:
            last = joined[-1]
            if last.offset + last.size == hole.offset:
                joined[-1] = Block(last.offset, last.size + hole.size)
            else:
                joined.append(hole)
        self._holes = joined

    def close(self) -> None:
        """Give the memory back; the receiver's mapping lives on until its views are gone."""
        self._path.unlink(missing_ok=True)
        self._map.close()


class SharedSegment:
    """The receiver's end."""

    def __init__(self, directory: Path, offer: Offer, max_bytes: int) -> None:
        """Map the file of an offer.

        Raises:
            OSError: there is no such file here, or it is not what was offered.
        """
        if not _NAME.fullmatch(offer.name) or not _BLOCK_ALIGNMENT < offer.size <= max_bytes:
            raise OSError(f"no shared segment {offer.name!r} of {offer.size} bytes")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(directory / offer.name, flags)
        try:
            found = os.fstat(descriptor)
            ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            if not ours or found.st_size != offer.size:
                raise OSError(f"shared segment {offer.name} is not what was offered")
            self._map = mmap.mmap(descriptor, offer.size, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        if self._map[:_NONCE_BYTES] != offer.nonce:
            raise OSError(f"shared segment {offer.name} is another file than the one offered")
        self.name = offer.name
        self._size = offer.size
        self._loop = asyncio.get_running_loop()
        self._in_use: set[int] = set()
        self._freed: list[int] = []
        self._on_freed: Callable[[], None] | None = None

    def watch(self, on_freed: Callable[[], None]) -> None:
        """Call `on_freed` on the loop whenever a block is no longer read."""
        self._on_freed = on_freed

    def view(self, sequence: int, offset: int, length: int) -> memoryview:
        """A message's payload where it lies; freed when the last view of it is gone.

        Raises:
            WireFormatError: it lies outside the segment.
        """
        if not length or offset % _BLOCK_ALIGNMENT or offset + length > self._size:
            raise WireFormatError(f"shared block at {offset} of {length} bytes")
        array = np.frombuffer(self._map, np.uint8, length, offset)
        self._in_use.add(sequence)
        weakref.finalize(array, self._unreferenced, sequence).atexit = False
        return array.data

    def _unreferenced(self, sequence: int) -> None:
        """Called by the garbage collector, on whatever thread it runs."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._free, sequence)

    def _free(self, sequence: int) -> None:
        self._in_use.discard(sequence)
        self._freed.append(sequence)
        if self._on_freed is not None:
            self._on_freed()

    def take_freed(self) -> list[int]:
        """Messages whose blocks are free since the last call."""
        freed, self._freed = self._freed, []
        return freed

    def in_use(self) -> list[int]:
        """Messages whose blocks are still read."""
        return list(self._in_use)
