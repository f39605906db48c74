"""Every message through encoder, envelopes and decoder, whole and in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni_wire.decoder import Decoder, parse_header
from omni_wire.edge import EdgeOptions
from omni_wire.encoder import Encoder
from omni_wire.envelope import scan
from omni_wire.errors import ErrorInfo, FrameTooLarge, WireFormatError
from omni_wire.identity import Endpoint, RequestKey
from omni_wire.messages import (
    Abort,
    AbortAck,
    Completed,
    Drain,
    Draining,
    Failed,
    Message,
    Open,
    OutputFrame,
    Payload,
    Ready,
    RequestView,
    Row,
    Rows,
    Stats,
    StepFrame,
    StreamDone,
    StreamError,
    Submit,
)
from omni_wire.posted import item_of
from omni_wire.sender_state import Send
from omni_wire.trees import to_numpy
from omni_wire.v1 import session_pb2, stage_pb2, tensor_pb2
from tests.support.trees import same, text, trees

MAX_HEADER_BYTES, MAX_PAYLOAD_BYTES = 1 << 20, 1 << 24
OPTIONS = EdgeOptions(frame_bytes=4096, part_bytes=1024)
NOW = 1_000.0

keys = st.builds(
    RequestKey, st.sampled_from(["g1", "g2"]), st.text("abc", min_size=1), st.integers(0, 3)
)
endpoints = st.builds(Endpoint, st.sampled_from(["a", "b@r1"]), text, st.integers(1, 1 << 62))
bindings = st.dictionaries(text, endpoints, max_size=3)
deadlines = st.none() | st.integers(0, 10**9).map(lambda micros: NOW + micros / 1e6)
named_trees = st.dictionaries(text, trees, max_size=2)
requests = st.none() | st.builds(RequestView, named_trees, named_trees, named_trees)
errors = st.builds(
    ErrorInfo, text, text, st.booleans(), text, st.dictionaries(text, text, max_size=2), text
)
counts = st.integers(0, 1 << 40)


@st.composite
def frames(draw: st.DrawFn, *, modality: bool) -> StepFrame | OutputFrame:
    about = draw(st.lists(keys, unique=True, max_size=5))
    rows = Rows(tuple(about), draw(st.lists(counts, min_size=len(about), max_size=len(about))))
    columns = {
        name: np.arange(len(about) * width, dtype=dtype).reshape(len(about), width)
        for name, width, dtype in (("x", 3, "f4"), ("codes", 16, "u2"), ("empty", 0, "i8"))
        if draw(st.booleans())
    }
    source, step, meta = draw(text), draw(counts), draw(trees)
    if modality:
        return OutputFrame(source, step, draw(text.filter(bool)), rows, columns, meta)
    return StepFrame(source, step, rows, columns, meta)


payload_messages = st.builds(Payload, keys, text, trees, requests, bindings, deadlines)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Open, keys, text, bindings, deadlines, requests),
    payload_messages,
    frames(modality=False),
    frames(modality=True),
    st.builds(StreamDone, keys, text, counts),
    st.builds(StreamError, keys, text, errors),
    st.builds(Abort, keys, text),
    st.builds(Completed, keys, text, trees),
    st.builds(Failed, keys, text, errors),
    st.builds(AbortAck, keys),
    st.builds(Ready, text, st.booleans(), text),
    st.builds(Stats, text, counts, counts, counts, st.floats(0, 1e9)),
    st.builds(Draining, st.lists(text, max_size=3).map(tuple)),
    st.builds(Submit, text, payload_messages),
    st.builds(Drain, st.floats(0, 1e6)),
)


class Wire:
    """Encoder and decoder of one direction, and the envelopes between them."""

    def __init__(self) -> None:
        self.encoder = Encoder(MAX_HEADER_BYTES, MAX_PAYLOAD_BYTES, clock=lambda: NOW)
        self.decoder = Decoder(clock=lambda: NOW)
        self.sequences = count(1)

    def envelopes(self, message: Message) -> Iterator[bytes]:
        item = item_of(self.encoder.encode(message), OPTIONS)
        first = 0
        for part in range(item.parts):
            sequence = next(self.sequences)
            first = first or sequence
            yield item.content.envelope(Send(sequence, item, part, first), OPTIONS.part_bytes)

    def decode(self, envelopes: Sequence[bytes]) -> Message:
        scanned = [scan(data, MAX_HEADER_BYTES) for data in envelopes]
        return self.decoder.decode(parse_header(scanned[0][0]), [payload for _, payload in scanned])


@given(messages)
def test_a_message_comes_back_as_it_went(message: Message) -> None:
    wire = Wire()
    back = wire.decode(list(wire.envelopes(message)))
    assert_alike(message, back)


def assert_alike(message: Message | RequestView, back: object) -> None:
    assert type(back) is type(message)
    for field in fields(message):
        ours, theirs = getattr(message, field.name), getattr(back, field.name)
        if isinstance(ours, Payload | RequestView):
            assert_alike(ours, theirs)
        elif field.name == "deadline" and ours is not None:
            assert theirs == pytest.approx(ours, abs=2e-6)
        elif field.name in ("data", "result", "meta", "inputs", "params", "metadata", "columns"):
            assert same(to_numpy(theirs), to_numpy(ours))
        else:
            assert theirs == ours


@given(messages)
def test_the_generated_class_parses_every_envelope(message: Message) -> None:
    for data in Wire().envelopes(message):
        envelope = session_pb2.Envelope.FromString(data)
        raw, payload = scan(envelope.SerializeToString(), MAX_HEADER_BYTES)
        assert payload == envelope.payload
        assert parse_header(raw) == envelope.header


@given(st.lists(frames(modality=False) | frames(modality=True), max_size=6))
def test_frames_may_change_from_step_to_step(sent: list[StepFrame | OutputFrame]) -> None:
    wire = Wire()
    for frame in sent:
        for _ in range(2):
            assert_alike(frame, wire.decode(list(wire.envelopes(frame))))


def test_a_frame_that_another_implementation_wrote_is_read() -> None:
    layout = stage_pb2.FrameLayout(
        source="thinker",
        request_ids=["r1", "r2"],
        gateways=["g1", "g2"],
        gateway_indices=[1, 0],
        epochs=[0, 3],
    )
    tensor = tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_INT16, shape=[2, 2], offset=0)
    layout.columns.add(name="codes", tensor=tensor)
    envelope = session_pb2.Envelope(payload=np.arange(4, dtype=np.int16).tobytes())
    envelope.header.frame.layout = layout.SerializeToString()
    envelope.header.frame.step = 7
    envelope.header.frame.chunk_ids.extend([4, 5])
    frame = Wire().decode([envelope.SerializeToString()])
    assert isinstance(frame, StepFrame)
    rows = (Row(RequestKey("g2", "r1"), 4), Row(RequestKey("g1", "r2", 3), 5))
    assert (frame.source, frame.step, frame.rows) == ("thinker", 7, rows)
    np.testing.assert_equal(to_numpy(frame.columns), {"codes": np.array([[0, 1], [2, 3]])})


KEY = RequestKey("g1", "r1")
ZEROS = np.zeros((1, 2))


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        pytest.param(
            StepFrame("s", 0, (Row(KEY, 0),), {"x": np.zeros((2, 2))}), "2 rows|1 rows", id="length"
        ),
        pytest.param(
            StepFrame("s", 0, (Row(KEY, 0),), {"x": np.float32(1)}), "1 rows", id="scalar column"
        ),
        pytest.param(
            StepFrame("s", 0, (Row(KEY, 0), Row(KEY, 1)), {}), "request twice", id="request twice"
        ),
        pytest.param(
            StepFrame("s", 0, (Row(KEY, -1),), {"x": ZEROS}), "StepFrame", id="negative chunk id"
        ),
        pytest.param(StreamDone(KEY, "s", 1 << 64), "StreamDone", id="count over 64 bits"),
        pytest.param(Payload(KEY, "s", np.zeros(1, "c8")), "complex64", id="foreign dtype"),
    ],
)
def test_what_cannot_be_sent_is_refused_when_it_is_posted(message: Message, problem: str) -> None:
    with pytest.raises(WireFormatError, match=problem):
        Wire().encoder.encode(message)


def test_messages_over_the_limits_are_refused_when_they_are_posted() -> None:
    encoder = Encoder(max_header_bytes=200, max_payload_bytes=1000)
    with pytest.raises(FrameTooLarge, match="header of"):
        encoder.encode(Payload(KEY, "s", list(range(1000))))
    with pytest.raises(FrameTooLarge, match="1000 bytes"):
        encoder.encode(Payload(KEY, "s", np.zeros(200)))


LAYOUT = stage_pb2.FrameLayout(request_ids=["r"], gateways=["g"])


def layout(**fields: object) -> bytes:
    changed = stage_pb2.FrameLayout(**fields)  # type: ignore[arg-type]
    merged = stage_pb2.FrameLayout()
    merged.CopyFrom(LAYOUT)
    merged.MergeFrom(changed)
    return merged.SerializeToString()


def column(name: str = "x", **fields: object) -> stage_pb2.Column:
    described = {"dtype": tensor_pb2.DTYPE_UINT8, "shape": [1], "offset": 0, **fields}
    return stage_pb2.Column(name=name, tensor=tensor_pb2.Tensor(**described))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(session_pb2.Header(), id="no body"),
        pytest.param(session_pb2.Header(part={"message": 1}), id="part alone"),  # type: ignore[arg-type]
        *(
            pytest.param(
                session_pb2.Header(frame=stage_pb2.StepFrame(layout=raw, chunk_ids=[0])), id=name
            )
            for name, raw in (
                ("layout that is no message", b"\xff"),
                ("gateway out of range", layout(gateway_indices=[2])),
                ("lists of different lengths", layout(epochs=[0, 0])),
                ("request twice", layout(request_ids=["r"])),
                ("more rows than chunk ids", layout(request_ids=["s"])),
                ("column past the end", layout(columns=[column(shape=[1, 99])])),
                ("column of another length", layout(columns=[column(shape=[2])])),
                ("column twice", layout(columns=[column(), column()])),
                ("column in the header", layout(columns=[column(data=b"1")])),
                ("unknown dtype", layout(columns=[column(dtype=77)])),
            )
        ),
        pytest.param(session_pb2.Header(abort=stage_pb2.Abort(reason="x")), id="no request id"),
        pytest.param(
            session_pb2.Header(
                open=stage_pb2.Open(
                    key=stage_pb2.RequestKey(request_id="r"),
                    bindings={"a": stage_pb2.Endpoint(instance="a")},
                )
            ),
            id="binding without incarnation",
        ),
    ],
)
def test_a_header_nobody_writes_is_refused(header: session_pb2.Header) -> None:
    with pytest.raises(WireFormatError):
        Decoder().decode(header, [memoryview(b"12345678")])


def test_bytes_that_are_no_header_are_refused() -> None:
    with pytest.raises(WireFormatError):
        parse_header(b"\x0b\xff")
