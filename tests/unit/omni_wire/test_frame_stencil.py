"""Reading a frame that repeats the one before it, against parsing it."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from omni_wire.decoder import Decoder, parse_header
from omni_wire.edge import EdgeOptions
from omni_wire.encoder import Encoder
from omni_wire.envelope import scan
from omni_wire.errors import WireFormatError
from omni_wire.frame_stencil import Stencil
from omni_wire.identity import RequestKey
from omni_wire.messages import OutputFrame, Rows, StepFrame
from omni_wire.posted import item_of
from omni_wire.sender_state import Send
from omni_wire.tensor import ArrayLike, Tensor
from omni_wire.v1 import session_pb2

OPTIONS = EdgeOptions()
MAX_HEADER_BYTES = OPTIONS.max_header_bytes
KEYS = (RequestKey("gateway", "first"), RequestKey("gateway", "second", 3))
STEPS = [1, 127, 128, 300, 1 << 62]


class Ends:
    """Encoder and decoder of one direction, and the stencil that its frames leave."""

    def __init__(self) -> None:
        self.encoder = Encoder(MAX_HEADER_BYTES, 1 << 20)
        self.decoder = Decoder()

    def envelope(self, frame: StepFrame | OutputFrame, sequence: int = 9) -> bytes:
        item = item_of(self.encoder.encode(frame), OPTIONS)
        return item.content.envelope(Send(sequence, item, 0, sequence), OPTIONS.part_bytes)

    def parse(self, data: bytes) -> tuple[int, StepFrame | OutputFrame]:
        raw, payload = scan(data, MAX_HEADER_BYTES)
        header = parse_header(raw)
        message = self.decoder.decode(header, (payload,))
        assert isinstance(message, StepFrame | OutputFrame)
        return header.sequence, message

    def stencil(self, frame: StepFrame | OutputFrame) -> Stencil | None:
        """What two frames in a row leave."""
        header = session_pb2.Header()
        for _ in range(2):
            raw, payload = scan(self.envelope(frame), MAX_HEADER_BYTES)
            header = parse_header(raw)
            self.decoder.decode(header, (payload,))
        return self.decoder.stencil(header)


def frame_of(step: int, *, modality: str = "", first_chunk: int = 0) -> StepFrame | OutputFrame:
    rows = Rows(KEYS, [first_chunk, first_chunk + 1])
    columns: dict[str, ArrayLike] = {
        "hidden": np.full((2, 3), step % 1000, np.float32),
        "codes": np.arange(2, dtype=np.uint16),
    }
    if modality:
        return OutputFrame("talker", step, modality, rows, columns)
    return StepFrame("talker", step, rows, columns)


def assert_same(ours: object, theirs: object) -> None:
    assert type(ours) is type(theirs)
    assert isinstance(ours, StepFrame | OutputFrame)
    for field in fields(ours):
        value, other = getattr(ours, field.name), getattr(theirs, field.name)
        if field.name != "columns":
            assert value == other
            continue
        assert list(value) == list(other)
        for name, tensor in value.items():
            assert isinstance(tensor, Tensor)
            assert (tensor.dtype, tensor.shape) == (other[name].dtype, other[name].shape)
            assert tensor.contiguous() == other[name].contiguous()


@pytest.mark.parametrize("modality", ["", "audio"])
@pytest.mark.parametrize("step", STEPS)
def test_a_repeated_frame_reads_as_it_parses(step: int, modality: str) -> None:
    ends = Ends()
    stencil = ends.stencil(frame_of(step, modality=modality))
    assert stencil is not None
    data = ends.envelope(frame_of(step, modality=modality, first_chunk=70_000), sequence=1 << 40)
    read = stencil.read(data)
    assert read is not None
    sequence, frame = ends.parse(data)
    assert read[0] == sequence == 1 << 40
    assert_same(read[1], frame)


def test_a_changed_byte_never_reads_as_something_else_than_it_parses() -> None:
    ends = Ends()
    stencil = ends.stencil(frame_of(200))
    assert stencil is not None
    data = ends.envelope(frame_of(300))
    understood = 0
    for position in range(len(data)):
        for byte in (0, 1, 0x12, 0x7F, 0x80, 0xFF):
            changed = data[:position] + bytes((byte,)) + data[position + 1 :]
            read = stencil.read(changed)
            if read is not None:
                understood += 1
                sequence, frame = ends.parse(changed)
                assert read[0] == sequence
                assert_same(read[1], frame)
    assert understood


@pytest.mark.parametrize(
    "other",
    [
        StepFrame("talker", 200, Rows(KEYS[:1], [0]), {"hidden": np.zeros((1, 3), np.float32)}),
        StepFrame("thinker", 200, Rows(KEYS, [0, 1]), frame_of(200).columns),
        StepFrame("talker", 200, Rows(KEYS, [0, 1]), frame_of(200).columns, meta={"last": True}),
        StepFrame("talker", 70_000, Rows(KEYS, [0, 1]), frame_of(200).columns),
        frame_of(200, modality="audio"),
    ],
    ids=["fewer rows", "another source", "with meta", "a longer number", "an output"],
)
def test_a_frame_that_differs_is_left_to_the_parser(other: StepFrame | OutputFrame) -> None:
    ends = Ends()
    stencil = ends.stencil(frame_of(200))
    assert stencil is not None
    data = ends.envelope(other)
    assert stencil.read(data) is None
    assert_same(ends.parse(data)[1], ends.parse(data)[1])


@pytest.mark.parametrize("size", [0, 1, 20, 100])
def test_a_frame_that_breaks_off_is_left_to_the_parser(size: int) -> None:
    ends = Ends()
    stencil = ends.stencil(frame_of(200))
    assert stencil is not None
    broken = ends.envelope(frame_of(200))[:size]
    assert stencil.read(broken) is None
    with pytest.raises(WireFormatError):
        ends.parse(broken)


def test_frames_that_do_not_repeat_leave_no_stencil() -> None:
    ends = Ends()
    header = parse_header(scan(ends.envelope(frame_of(1)), MAX_HEADER_BYTES)[0])
    ends.decoder.decode(header, (scan(ends.envelope(frame_of(1)), MAX_HEADER_BYTES)[1],))
    assert ends.decoder.stencil(header) is None
    with_meta = StepFrame("talker", 1, Rows(KEYS, [0, 1]), frame_of(1).columns, meta=1)
    assert ends.stencil(with_meta) is None
