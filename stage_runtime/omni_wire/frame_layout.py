"""Frames to headers and back, at a cost that does not depend on what stays the same between steps.

A step repeats the source, the requests and the columns of the step before it, mostly. These form
the frame's layout, which is serialized once by the sender and parsed once by the receiver for as
long as it lasts; a frame then costs a step number, its chunk ids and a view per column.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from itertools import repeat

from google.protobuf.message import DecodeError

from omni_wire.arrays import described, dtype_of
from omni_wire.envelope import varint
from omni_wire.errors import WireFormatError
from omni_wire.frame_stencil import (
    CHUNK_IDS_TAG,
    FRAME_TAG,
    LAYOUT_TAG,
    META_TAG,
    PAYLOAD_BYTES_TAG,
    STEP_TAG,
    Column,
    Layout,
    Stencil,
)
from omni_wire.identity import RequestKey
from omni_wire.messages import OutputFrame, Rows, StepFrame, Tree
from omni_wire.payload import PayloadReader, PayloadWriter, tensor_bytes
from omni_wire.tensor import ArrayLike, Tensor
from omni_wire.trees import decode_tree, encode_tree
from omni_wire.v1 import stage_pb2, tensor_pb2
from omni_wire.v1.session_pb2 import Header

# A batch of one step; far above any scheduler's, far below what would fill memory.
MAX_ROWS = 65_536
# Longer numbers are no steps, and take the tenth byte in which protobuf cuts them off.
_MAX_STEP = (1 << 63) - 1

_EMPTY_LAYOUT: Layout = ("", "", (), ())


class FrameEncoder:
    """Encodes the frames of one direction of one session."""

    def __init__(self) -> None:
        self._layout = _EMPTY_LAYOUT
        # The layout as it stands in a frame, up to the number of the step.
        self._serialized = STEP_TAG
        self._before_ids = b""
        self._chunk_ids = struct.Struct("")

    def encode(self, frame: StepFrame | OutputFrame, payload: PayloadWriter) -> bytes:
        """A serialized Header with the frame; its columns are added to `payload`.

        Raises:
            WireFormatError: a request twice, a column of another length, or a dtype the wire lacks.
            FrameTooLarge: the payload's limit is exceeded.
        """
        rows = frame.rows if type(frame.rows) is Rows else Rows.of(frame.rows)
        columns = tuple([_place(column, payload) for column in frame.columns.items()])
        modality = "" if isinstance(frame, StepFrame) else _modality(frame)
        layout = (frame.source, modality, rows.keys, columns)
        if layout != self._layout:
            self._begin(layout)
        step, ids = varint(frame.step), b""
        if rows.keys:
            try:
                ids = self._chunk_ids.pack(*rows.chunk_ids)
            except struct.error as error:
                raise WireFormatError(f"{type(frame).__name__}: chunk id: {error}") from error
        meta = _meta(frame.meta, payload) if frame.meta is not None else b""
        before_ids = self._before_ids
        length = len(self._serialized) + len(step) + len(before_ids) + len(ids) + len(meta)
        head = (PAYLOAD_BYTES_TAG, varint(payload.size), FRAME_TAG, varint(length))
        return b"".join((*head, self._serialized, step, before_ids, ids, meta))

    def _begin(self, layout: Layout) -> None:
        """Serialize a layout that may last for many frames."""
        serialized = _serialize(layout)
        count = len(layout[2])
        self._serialized = b"".join((LAYOUT_TAG, varint(len(serialized)), serialized, STEP_TAG))
        self._before_ids = CHUNK_IDS_TAG + varint(8 * count) if count else b""
        self._chunk_ids = struct.Struct(f"<{count}Q")
        self._layout = layout


def _modality(frame: OutputFrame) -> str:
    if not frame.modality:
        raise WireFormatError("output without a modality")
    return frame.modality


def _meta(meta: Tree, payload: PayloadWriter) -> bytes:
    node = tensor_pb2.Tree()
    encode_tree(meta, node, payload)
    serialized = node.SerializeToString()
    return b"".join((META_TAG, varint(len(serialized)), serialized))


def _place(column: tuple[str, ArrayLike], payload: PayloadWriter) -> Column:
    """Add a column to the payload."""
    name, array = column
    try:
        dtype, shape, size, parts = described(array)
    except TypeError as error:
        raise WireFormatError(f"column {name}: {error}") from error
    return name, dtype, shape, payload.add(parts, size), size


def _serialize(layout: Layout) -> bytes:
    source, modality, keys, columns = layout
    if len(set(keys)) != len(keys):
        raise WireFormatError("frame with a request twice")
    for name, _, shape, _, _ in columns:
        if shape[:1] != (len(keys),):
            raise WireFormatError(f"column {name} of shape {shape} in a frame of {len(keys)} rows")
    node = stage_pb2.FrameLayout(source=source, modality=modality)
    node.request_ids.extend([key.request_id for key in keys])
    node.gateways.extend(dict.fromkeys(key.gateway for key in keys))
    if len(node.gateways) > 1:
        numbers = {gateway: number for number, gateway in enumerate(node.gateways)}
        node.gateway_indices.extend([numbers[key.gateway] for key in keys])
    if any(key.epoch for key in keys):
        node.epochs.extend([key.epoch for key in keys])
    for name, dtype, shape, offset, _ in columns:
        tensor = node.columns.add(name=name).tensor
        tensor.dtype = tensor_pb2.DType.ValueType(dtype.value)
        tensor.shape.extend(shape)
        tensor.offset = offset
    return node.SerializeToString()


class FrameDecoder:
    """Decodes the frames of one direction of one session."""

    def __init__(self) -> None:
        self._layout = _EMPTY_LAYOUT
        self._serialized = b""
        self._repeated = False

    def decode(
        self, node: stage_pb2.StepFrame, pieces: Sequence[memoryview]
    ) -> StepFrame | OutputFrame:
        """The frame in `node`, its columns as views of the payload that arrived in `pieces`.

        Raises:
            WireFormatError: it is not what `FrameEncoder` writes.
        """
        serialized = node.layout
        self._repeated = serialized == self._serialized
        if not self._repeated:
            self._layout = _parse(serialized)
            self._serialized = serialized
        source, modality, keys, placed = self._layout
        chunk_ids = node.chunk_ids[:]
        if len(chunk_ids) != len(keys):
            raise WireFormatError(f"{len(chunk_ids)} chunk ids in {len(keys)} rows")
        rows = Rows(keys, chunk_ids)
        payload = PayloadReader(pieces)
        columns = {
            name: Tensor(dtype, shape, payload.cut(offset, size))
            for name, dtype, shape, offset, size in placed
        }
        meta = decode_tree(node.meta, payload) if node.HasField("meta") else None
        if modality:
            return OutputFrame(source, node.step, modality, rows, columns, meta)
        return StepFrame(source, node.step, rows, columns, meta)

    def stencil(self, header: Header) -> Stencil | None:
        """What to expect after the frame in `header`, the last one decoded, if frames repeat."""
        node = header.frame
        plain = header.payload_bytes and node.step <= _MAX_STEP and not node.HasField("meta")
        if not self._repeated or not plain or sys.byteorder != "little":
            return None
        return Stencil(header, self._layout)


def keys_in(serialized: bytes) -> tuple[RequestKey, ...]:
    """The requests of a serialized FrameLayout.

    Raises:
        WireFormatError: it is not what `FrameEncoder` writes.
    """
    _, _, keys, _ = _parse(serialized)
    return keys


def _parse(serialized: bytes) -> Layout:
    try:
        node = stage_pb2.FrameLayout.FromString(serialized)
    except DecodeError as error:
        raise WireFormatError("frame layout is no protobuf message") from error
    keys = _keys(node)
    columns = tuple([_column(column, len(keys)) for column in node.columns])
    if len({name for name, *_ in columns}) != len(columns):
        raise WireFormatError("frame with a column twice")
    return node.source, node.modality, keys, columns


def _keys(node: stage_pb2.FrameLayout) -> tuple[RequestKey, ...]:
    rows = len(node.request_ids)
    if rows > MAX_ROWS:
        raise WireFormatError(f"frame of {rows} rows")
    if len(node.gateway_indices) not in (0, rows) or len(node.epochs) not in (0, rows):
        raise WireFormatError("frame with lists of different lengths")
    if rows and max(node.gateway_indices, default=0) >= len(node.gateways):
        raise WireFormatError("frame with an unknown gateway")
    gateways = [node.gateways[index] for index in node.gateway_indices]
    keys = tuple(
        map(RequestKey, gateways or repeat(node.gateways[0] if rows else ""), node.request_ids)
    )
    if node.epochs:
        keys = tuple(
            [key._replace(epoch=epoch) for key, epoch in zip(keys, node.epochs, strict=True)]
        )
    if len(set(keys)) != rows or not all(node.request_ids):
        raise WireFormatError("frame with a request twice, or one without an id")
    return keys


def _column(node: stage_pb2.Column, rows: int) -> Column:
    dtype = dtype_of(node.tensor)
    shape = tuple(node.tensor.shape)
    if node.tensor.HasField("data") or shape[:1] != (rows,):
        raise WireFormatError(f"column {node.name} of shape {shape} in a frame of {rows} rows")
    return node.name, dtype, shape, node.tensor.offset, tensor_bytes(dtype, shape)
