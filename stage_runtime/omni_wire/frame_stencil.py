"""Frames that repeat the one before them, read without parsing.

From step to step nothing changes in an envelope but the step's number, the chunk ids, the sequence
number and the rows themselves, all of them at the same places. A stencil is what does not change:
an envelope that agrees with it byte for byte means what the parsed one meant, and any other is
parsed.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

from omni_wire.accounts import message_cost
from omni_wire.envelope import (
    HEADER_TAG,
    SEQUENCE_BYTES,
    SEQUENCE_TAG,
    lead,
    read_varint,
    varint,
)
from omni_wire.identity import RequestKey
from omni_wire.messages import OutputFrame, Rows, StepFrame
from omni_wire.tensor import DType, Tensor
from omni_wire.v1.session_pb2 import Header

# Fields of Header and of StepFrame in session.proto and stage.proto.
PAYLOAD_BYTES_TAG = b"\x10"
FRAME_TAG = b"\x92\x01"
LAYOUT_TAG = b"\x0a"
STEP_TAG = b"\x10"
CHUNK_IDS_TAG = b"\x1a"
META_TAG = b"\x22"

# Plain tuples, for a step makes and compares one of each.
# Of a column: its name, dtype and shape, and its offset and size in the payload, in bytes.
Column: TypeAlias = tuple[str, DType, tuple[int, ...], int, int]
# Of a frame: source, modality, requests and columns.
Layout: TypeAlias = tuple[str, str, tuple[RequestKey, ...], tuple[Column, ...]]


class Stencil:
    """What envelopes have in common that differ only in step, chunk ids, number and rows.

    Attributes:
        keys: the requests, one per row.
        cost: bytes charged for each.
    """

    __slots__ = (
        "_columns",
        "_head",
        "_lead",
        "_middle",
        "_modality",
        "_rest",
        "_rest_at",
        "_size",
        "_source",
        "cost",
        "keys",
    )

    def __init__(self, header: Header, layout: Layout) -> None:
        """The stencil of a frame without `meta`, as `FrameEncoder` and `join` write it."""
        node = header.frame
        self._source, self._modality, self.keys, columns = layout
        ids_bytes = 8 * len(self.keys)
        self._middle = CHUNK_IDS_TAG + varint(ids_bytes)
        before_step = _before_step(header, len(self._middle) + ids_bytes)
        step_bytes = len(varint(node.step))
        payload_bytes = header.payload_bytes
        unnumbered_bytes = len(before_step) + step_bytes + len(self._middle) + ids_bytes
        self.cost = message_cost(unnumbered_bytes, payload_bytes)
        self._head = HEADER_TAG + varint(unnumbered_bytes + SEQUENCE_BYTES) + before_step
        self._rest_at = len(self._head) + step_bytes
        header_end = self._rest_at + len(self._middle) + ids_bytes + SEQUENCE_BYTES
        self._lead = lead(header_end, payload_bytes)
        self._rest = struct.Struct(f"<{len(self._middle)}s{ids_bytes}scQ{len(self._lead)}s")
        begin = header_end + len(self._lead)
        self._size = begin + payload_bytes
        self._columns = [
            (name, dtype, shape, begin + offset, begin + offset + size)
            for name, dtype, shape, offset, size in columns
        ]

    def read(self, data: bytes) -> tuple[int, StepFrame | OutputFrame] | None:
        """Sequence number and frame of an envelope, None for one that differs in anything else."""
        if len(data) != self._size or not data.startswith(self._head):
            return None
        middle, ids, tag, sequence, before = self._rest.unpack_from(data, self._rest_at)
        step, end = read_varint(data, len(self._head))
        if (
            middle != self._middle
            or tag != SEQUENCE_TAG
            or not sequence
            or before != self._lead
            or end != self._rest_at
        ):
            return None
        view = memoryview(data)
        columns = {}
        for name, dtype, shape, begin, end in self._columns:
            columns[name] = Tensor(dtype, shape, (view[begin:end],))
        # Numbers are made of the ids only where somebody asks for them.
        rows = Rows(self.keys, memoryview(ids).cast("Q"))
        if self._modality:
            return sequence, OutputFrame(self._source, step, self._modality, rows, columns)
        return sequence, StepFrame(self._source, step, rows, columns)


def _before_step(header: Header, after_step: int) -> bytes:
    """A frame's header up to the number of its step, which `after_step` bytes follow."""
    node = header.frame
    layout = LAYOUT_TAG + varint(len(node.layout)) + node.layout + STEP_TAG
    frame_bytes = len(layout) + len(varint(node.step)) + after_step
    return b"".join(
        (
            PAYLOAD_BYTES_TAG,
            varint(header.payload_bytes),
            FRAME_TAG,
            varint(frame_bytes),
            layout,
        )
    )
