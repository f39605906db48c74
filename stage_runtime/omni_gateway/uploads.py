"""Files that arrive in parts on a Converse stream, held until a request names them."""

from __future__ import annotations

import hashlib

from omni_wire.errors import InvalidRequest
from omni_wire.v1 import gateway_pb2 as pb

MAX_STREAM_BYTES = 512 << 20
"""Bound on the files of one stream together."""


class Uploads:
    """The files of one stream."""

    def __init__(self, max_bytes: int = MAX_STREAM_BYTES) -> None:
        self._max_bytes = max_bytes
        self._parts: dict[str, list[bytes]] = {}
        self._total = 0
        self.complete: dict[str, bytes] = {}
        """Whole files, by id."""

    def add(self, part: pb.UploadPart) -> pb.UploadReceived:
        """Take in a part.

        Raises:
            InvalidRequest: it has no id, comes after the last part, or goes over the bound.
        """
        name = part.upload_id
        if not name:
            raise _refused("upload.upload_id", "is empty; choose an id for the file")
        if name in self.complete:
            raise _refused("upload.upload_id", f"'{name}' is complete; choose another id")
        self._total += len(part.data)
        if self._total > self._max_bytes:
            raise _refused("upload.data", f"goes over {self._max_bytes} bytes for one stream")
        parts = self._parts.setdefault(name, [])
        parts.append(part.data)
        received = pb.UploadReceived(upload_id=name, bytes=sum(map(len, parts)))
        if part.last:
            data = b"".join(self._parts.pop(name))
            self.complete[name] = data
            received.sha256 = hashlib.sha256(data).hexdigest()
        return received


def _refused(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"{field} {problem}", details={"field": field})
