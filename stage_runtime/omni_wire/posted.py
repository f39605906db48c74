"""A posted message as its driver keeps it: encoded, cut into parts, and joined when it is sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from omni_wire.accounts import Item
from omni_wire.edge import EdgeOptions
from omni_wire.encoder import Encoded
from omni_wire.envelope import join
from omni_wire.sender_state import Send
from omni_wire.shared_arena import Block
from omni_wire.v1.session_pb2 import Header, SharedBlock

# What a message costs beside its bytes: the objects that hold it at either end.
MESSAGE_BYTES = 256
# Parts are no smaller, so that the objects around them never outweigh their bytes.
MIN_PART_BYTES = 1024

Pieces = Sequence[memoryview | bytes]


@dataclass(slots=True, eq=False)
class Posted:
    """Content of an Item: the header, and the payload by parts.

    Attributes:
        header: serialized Header without a sequence number.
        parts: views of each part's payload, with its length.
        block: where the payload lies instead, when it was copied to shared memory.
    """

    header: bytes
    parts: tuple[tuple[Pieces, int], ...]
    block: Block | None = None

    def envelope(self, send: Send[Posted], part_bytes: int) -> bytes:
        """The bytes of one part: the only copy of the payload on its way out."""
        pieces, length = self.parts[send.part]
        header = self.header
        if send.part:
            part = Header()
            part.part.message = send.first
            part.part.offset = send.part * part_bytes
            header = part.SerializeToString()
        return join(header, send.sequence, pieces, length)


def message_cost(header_bytes: int, payload_bytes: int) -> int:
    """Bytes that both sides charge for a message; `header_bytes` without the sequence number."""
    return header_bytes + payload_bytes + MESSAGE_BYTES


def item_of(encoded: Encoded, options: EdgeOptions, *, free: bool = False) -> Item[Posted]:
    """An encoded message as something to post; `free` ones cost no credit."""
    size = encoded.payload_bytes
    cost = 0 if free else message_cost(len(encoded.header), size)
    if size <= options.frame_bytes:
        return Item(encoded.keys, cost, 1, False, Posted(encoded.header, ((encoded.pieces, size),)))
    parts = tuple(_cut(encoded.pieces, options.part_bytes))
    return Item(encoded.keys, cost, len(parts), True, Posted(encoded.header, parts))


def shared_item_of(encoded: Encoded, block: Block, options: EdgeOptions) -> Item[Posted]:
    """An encoded message whose payload was copied to a shared block."""
    bulk = len(encoded.keys) == 1 and encoded.payload_bytes > options.frame_bytes
    where = Header(shared=SharedBlock(offset=block.offset, bulk=bulk))
    # Serialized messages with different fields may be joined into one.
    header = encoded.header + where.SerializeToString()
    cost = message_cost(len(header), encoded.payload_bytes)
    return Item(encoded.keys, cost, 1, bulk, Posted(header, (((), 0),), block))


def _cut(pieces: Pieces, part_bytes: int) -> Iterator[tuple[Pieces, int]]:
    """The payload in parts of `part_bytes` bytes, the last one shorter; views only."""
    part: list[memoryview | bytes] = []
    room = part_bytes
    for piece in pieces:
        rest = memoryview(piece).cast("B")
        while len(rest) >= room:
            part.append(rest[:room])
            yield part, part_bytes
            rest = rest[room:]
            part, room = [], part_bytes
        if len(rest):
            part.append(rest)
            room -= len(rest)
    if part:
        yield part, part_bytes - room
