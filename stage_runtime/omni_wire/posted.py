"""An encoded message as something to post: what it costs, and how it is cut into parts."""

from __future__ import annotations

from collections.abc import Iterator

from omni_wire.accounts import Item, message_cost
from omni_wire.edge import EdgeOptions
from omni_wire.encoded import Encoded, Pieces
from omni_wire.shared_arena import Block
from omni_wire.v1.session_pb2 import Header, SharedBlock

# Parts are no smaller, so that the objects around them never outweigh their bytes.
MIN_PART_BYTES = 1024


def item_of(encoded: Encoded, options: EdgeOptions, *, free: bool = False) -> Item[Encoded]:
    """An encoded message as something to post; `free` ones cost no credit."""
    size = encoded.payload_bytes
    cost = 0 if free else message_cost(len(encoded.header), size)
    if size <= options.frame_bytes:
        return Item(encoded.keys, cost, 1, False, encoded)
    encoded.parts = tuple(_cut(encoded.pieces, options.part_bytes))
    return Item(encoded.keys, cost, len(encoded.parts), True, encoded)


def shared_item_of(encoded: Encoded, block: Block, options: EdgeOptions) -> Item[Encoded]:
    """An encoded message whose payload was copied to a shared block."""
    bulk = len(encoded.keys) == 1 and encoded.payload_bytes > options.frame_bytes
    where = Header(shared=SharedBlock(offset=block.offset, bulk=bulk))
    # Serialized messages with different fields may be joined into one.
    header = encoded.header + where.SerializeToString()
    cost = message_cost(len(header), encoded.payload_bytes)
    return Item(encoded.keys, cost, 1, bulk, Encoded(header, (), 0, encoded.keys, block=block))


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
