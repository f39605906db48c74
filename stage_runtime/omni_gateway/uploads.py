"""Files that arrive in parts on a Converse stream, held until the stream ends."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from omni_wire.errors import InvalidRequest, QueueFull
from omni_wire.v1 import gateway_pb2 as pb

MAX_STREAM_BYTES = 512 << 20
"""Bound on the files of one stream together."""
MAX_HELD_BYTES = 2 << 30
"""Bound on the files of all streams of a gateway together, however much memory there is."""


@dataclass(slots=True)
class UploadMemory:
    """What the files of all streams hold, under one bound.

    Attributes:
        limit_bytes: most of all files together.
        held_bytes: of those that are there.
    """

    limit_bytes: int = MAX_HELD_BYTES
    held_bytes: int = 0

    def take(self, size: int) -> None:
        """Make room for a part.

        Raises:
            QueueFull: other files fill the memory.
        """
        if self.held_bytes + size > self.limit_bytes:
            raise QueueFull("other uploads fill the memory for files")
        self.held_bytes += size


class Uploads:
    """The files of one stream.

    Args:
        memory: shared with all streams.
    """

    def __init__(self, memory: UploadMemory, max_bytes: int = MAX_STREAM_BYTES) -> None:
        self._memory = memory
        self._max_bytes = min(max_bytes, memory.limit_bytes)
        self._parts: dict[str, list[bytes]] = {}
        self._total = 0
        self.complete: dict[str, bytes] = {}
        """Whole files, by id."""

    def add(self, part: pb.UploadPart) -> pb.UploadReceived:
        """Take in a part.

        Raises:
            InvalidRequest: it has no id, comes after the last part, or goes over the bound.
            QueueFull: other streams' files fill the memory.
        """
        name, size = part.upload_id, len(part.data)
        if not name:
            raise _refused("upload.upload_id", "is empty; choose an id for the file")
        if name in self.complete:
            raise _refused("upload.upload_id", f"'{name}' is complete; choose another id")
        if self._total + size > self._max_bytes:
            raise _refused("upload.data", f"goes over {self._max_bytes} bytes for one stream")
        self._memory.take(size)
        self._total += size
        parts = self._parts.setdefault(name, [])
        parts.append(part.data)
        received = pb.UploadReceived(upload_id=name, bytes=sum(map(len, parts)))
        if part.last:
            data = b"".join(self._parts.pop(name))
            self.complete[name] = data
            received.sha256 = hashlib.sha256(data).hexdigest()
        return received

    def close(self) -> None:
        """Forget all files."""
        self._memory.held_bytes -= self._total
        self._total = 0
        self._parts.clear()
        self.complete.clear()


def _refused(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"{field} {problem}", details={"field": field})
