"""Frames to headers and back, at a cost that does not depend on what stays the same between steps.

A step repeats the source, the requests and the columns of the step before it, mostly. These form
the frame's layout, which is serialized once by the sender and parsed once by the receiver for as
long as it lasts; a frame then costs a step number, its chunk ids and a view per column.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from itertools import repeat
from typing import TypeAlias

from google.protobuf.message import DecodeError

from omni_wire.arrays import described, dtype_of
from omni_wire.envelope import varint
from omni_wire.errors import WireFormatError
from omni_wire.identity import RequestKey
from omni_wire.messages import OutputFrame, Rows, StepFrame, Tree
from omni_wire.payload import PayloadReader, PayloadWriter, tensor_bytes
from omni_wire.tensor import ArrayLike, DType, Tensor
from omni_wire.trees import decode_tree, encode_tree
from omni_wire.v1 import stage_pb2, tensor_pb2

# A batch of one step; far above any scheduler's, far below what would fill memory.
MAX_ROWS = 65_536


# Plain tuples, for a step makes and compares one of each.
# Of a column: its name, dtype and shape, and its offset and size in the payload, in bytes.
_Column: TypeAlias = tuple[str, DType, tuple[int, ...], int, int]
# Of a frame: source, modality, requests and columns.
_Layout: TypeAlias = tuple[str, str, tuple[RequestKey, ...], tuple[_Column, ...]]

_EMPTY_LAYOUT: _Layout = ("", "", (), ())


# Fields of Header and of StepFrame in session.proto and stage.proto. A frame is written by hand,
# for the generated classes would copy its layout twice and make an object of each level, every
# step.
_PAYLOAD_BYTES_TAG = b"\x10"
_FRAME_TAG = b"\x92\x01"
_LAYOUT_TAG = b"\x0a"
_STEP_TAG = b"\x10"
_CHUNK_IDS_TAG = b"\x1a"
_META_TAG = b"\x22"


class FrameEncoder:
    """Encodes the frames of one direction of one session."""

    def __init__(self) -> None:
        self._layout = _EMPTY_LAYOUT
        self._serialized = b""

    def encode(self, frame: StepFrame | OutputFrame, payload: PayloadWriter) -> bytes:
        """A serialized Header with the frame; its columns are added to `payload`.

        Raises:
            WireFormatError: a request twice, a column of another length, or a dtype the wire lacks.
            FrameTooLarge: the payload's limit is exceeded.
        """
        rows = frame.rows if type(frame.rows) is Rows else Rows.of(frame.rows)
        count = len(rows.keys)
        columns = tuple(
            [_place(name, column, payload, count) for name, column in frame.columns.items()]
        )
        modality = "" if isinstance(frame, StepFrame) else _modality(frame)
        layout = (frame.source, modality, rows.keys, columns)
        if layout != self._layout:
            serialized = _serialize(layout)
            self._serialized = _LAYOUT_TAG + varint(len(serialized)) + serialized
            self._layout = layout
        fields: list[bytes | array[int]] = [self._serialized, _STEP_TAG, varint(frame.step)]
        if count:
            chunk_ids = _packed(rows.chunk_ids)
            fields += (_CHUNK_IDS_TAG, varint(8 * count), chunk_ids)
        if frame.meta is not None:
            fields += _meta(frame.meta, payload)
        body = b"".join(fields)
        size = varint(payload.size)
        return b"".join((_PAYLOAD_BYTES_TAG, size, _FRAME_TAG, varint(len(body)), body))


def _packed(chunk_ids: Sequence[int]) -> array[int]:
    try:
        packed = array("Q", chunk_ids)
    except OverflowError as error:
        raise WireFormatError(f"StepFrame: chunk id: {error}") from error
    if sys.byteorder == "big":
        packed.byteswap()
    return packed


def _modality(frame: OutputFrame) -> str:
    if not frame.modality:
        raise WireFormatError("output without a modality")
    return frame.modality


def _meta(meta: Tree, payload: PayloadWriter) -> tuple[bytes, bytes, bytes]:
    node = tensor_pb2.Tree()
    encode_tree(meta, node, payload)
    serialized = node.SerializeToString()
    return _META_TAG, varint(len(serialized)), serialized


def _place(name: str, column: ArrayLike, payload: PayloadWriter, rows: int) -> _Column:
    """Add a column to the payload."""
    try:
        dtype, shape, size, parts = described(column)
    except TypeError as error:
        raise WireFormatError(f"column {name}: {error}") from error
    if not shape or shape[0] != rows:
        raise WireFormatError(f"column {name} of shape {shape} in a frame of {rows} rows")
    return name, dtype, shape, payload.add(parts, size), size


def _serialize(layout: _Layout) -> bytes:
    source, modality, keys, columns = layout
    if len(set(keys)) != len(keys):
        raise WireFormatError("frame with a request twice")
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

    def decode(
        self, node: stage_pb2.StepFrame, pieces: Sequence[memoryview]
    ) -> StepFrame | OutputFrame:
        """The frame in `node`, its columns as views of the payload that arrived in `pieces`.

        Raises:
            WireFormatError: it is not what `FrameEncoder` writes.
        """
        serialized = node.layout
        if serialized != self._serialized:
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


def keys_in(serialized: bytes) -> tuple[RequestKey, ...]:
    """The requests of a serialized FrameLayout.

    Raises:
        WireFormatError: it is not what `FrameEncoder` writes.
    """
    _, _, keys, _ = _parse(serialized)
    return keys


def _parse(serialized: bytes) -> _Layout:
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


def _column(node: stage_pb2.Column, rows: int) -> _Column:
    dtype = dtype_of(node.tensor)
    shape = tuple(node.tensor.shape)
    if node.tensor.HasField("data") or shape[:1] != (rows,):
        raise WireFormatError(f"column {node.name} of shape {shape} in a frame of {rows} rows")
    return node.name, dtype, shape, node.tensor.offset, tensor_bytes(dtype, shape)
