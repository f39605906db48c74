"""A message as its sender keeps it: encoded when posted, joined into bytes when sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from omni_wire.envelope import join, varint
from omni_wire.identity import RequestKey
from omni_wire.sender_state import Send
from omni_wire.shared_arena import Block

# Fields of Header and of Part in session.proto.
_PART_TAG = b"\x5a"
_MESSAGE_TAG = b"\x09"
_OFFSET_TAG = b"\x10"

Pieces: TypeAlias = Sequence[memoryview | bytes]


# Not frozen, as Item is not: each message makes one.
@dataclass(slots=True, eq=False)
class Encoded:
    """A message ready to be joined into envelopes.

    Attributes:
        header: serialized Header without its sequence number.
        pieces: the payload as views of the sender's memory, `payload_bytes` bytes together.
        keys: requests the message is about; one per row for frames, none for messages about the
            process itself.
        parts: views of each part's payload with its length, where it travels in several envelopes.
        block: where the payload lies instead, when it was copied to shared memory.
    """

    header: bytes
    pieces: Pieces
    payload_bytes: int
    keys: tuple[RequestKey, ...]
    parts: Sequence[tuple[Pieces, int]] = ()
    block: Block | None = None

    def envelope(self, send: Send[Encoded], part_bytes: int) -> bytes:
        """The bytes of one part: the only copy of the payload on its way out."""
        if not self.parts:
            return join(self.header, send.sequence, self.pieces, self.payload_bytes)
        pieces, length = self.parts[send.part]
        header = _part(send.first, send.part * part_bytes) if send.part else self.header
        return join(header, send.sequence, pieces, length)


def _part(message: int, offset: int) -> bytes:
    """A serialized Header with a Part, written by hand as frames are."""
    where = b"".join((_MESSAGE_TAG, message.to_bytes(8, "little"), _OFFSET_TAG, varint(offset)))
    return b"".join((_PART_TAG, varint(len(where)), where))
