"""A payload that arrives in parts, kept in the pieces it comes in.

Nothing is allocated ahead for the length a peer announces: memory grows with what has arrived.
"""

from __future__ import annotations

from omni_wire.errors import WireFormatError
from omni_wire.identity import RequestKey
from omni_wire.payload import ALIGNMENT
from omni_wire.posted import MIN_PART_BYTES
from omni_wire.v1.session_pb2 import Header


class Assembly:
    """The one message of a session whose parts are arriving.

    Attributes:
        sequence: number of its first envelope.
        header: the message's header.
        keys: the one request it is about.
        pieces: the payload so far.
    """

    __slots__ = ("_left", "_offset", "header", "keys", "pieces", "sequence")

    def __init__(
        self, header: Header, first: memoryview, keys: tuple[RequestKey, ...], max_bytes: int
    ) -> None:
        """Begin with the first envelope.

        Raises:
            WireFormatError: a payload over the limit, or a first part that cannot be one.
        """
        if header.payload_bytes > max_bytes:
            raise WireFormatError(f"payload of {header.payload_bytes} bytes exceeds {max_bytes}")
        self.sequence = header.sequence
        self.header = header
        self.keys = keys
        self.pieces: list[memoryview] = []
        self._offset = 0
        self._left = header.payload_bytes
        self._append(first)

    def add(self, header: Header, piece: memoryview) -> bool:
        """Append the next part; True when it was the last.

        Raises:
            WireFormatError: a part of another message, out of place, too short or too long.
        """
        if header.part.message != self.sequence or header.part.offset != self._offset:
            raise WireFormatError(f"part at {header.part.offset}, expected {self._offset}")
        self._append(piece)
        return not self._left

    def _append(self, piece: memoryview) -> None:
        length = len(piece)
        last = length == self._left
        if length > self._left or not (
            last or (length >= MIN_PART_BYTES and not length % ALIGNMENT)
        ):
            raise WireFormatError(f"part of {length} bytes where {self._left} are left")
        self.pieces.append(piece)
        self._offset += length
        self._left -= length
