"""Hostile bytes: a typed refusal, never another exception, never memory beyond the stated bound."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omni_wire.decoder import parse_header
from omni_wire.edge import EdgeOptions, Release
from omni_wire.encoder import Encoder
from omni_wire.envelope import join, scan, varint
from omni_wire.errors import WireFormatError
from omni_wire.handshake import decode_ack, expect
from omni_wire.identity import Endpoint, RequestKey
from omni_wire.inbox import Inbox
from omni_wire.messages import Message, Open, Payload, RequestView, Row, StepFrame, StreamDone
from omni_wire.outbox import Outbox
from omni_wire.posted import item_of
from omni_wire.receiver_state import EnvelopeMissing
from omni_wire.sender_state import Send
from omni_wire.v1 import session_pb2

OPTIONS = EdgeOptions(
    frame_bytes=2048,
    part_bytes=1024,
    edge_credit_bytes=64 * 1024,
    max_message_bytes=64 * 1024,
    max_header_bytes=16 * 1024,
)
# What a refused envelope may cost: its own bytes again, 64 times its header, and small change.
BOUND_PER_BYTE, SMALL_CHANGE = 64, 256 * 1024
KEY = RequestKey("gateway", "r")


def valid_envelopes() -> Iterator[bytes]:
    bindings = {"talker": Endpoint("talker", "dns:///t:1", 5)}
    messages: list[Message] = [
        Open(KEY, "s", bindings, 1.0, RequestView({"p": ["a", 1]}, {"k": 2.0}, {})),
        StepFrame("s", 1, (Row(KEY, 0),), {"x": np.arange(4).reshape(1, 4)}, {"m": [1, 2]}),
        StreamDone(KEY, "s", 1),
        Payload(KEY, "s", {"x": np.zeros(750, np.float32), "t": ("a", None)}),
    ]
    encoder = Encoder(OPTIONS.max_header_bytes, OPTIONS.max_message_bytes)
    sequence = 0
    for message in messages:
        item = item_of(encoder.encode(message), OPTIONS)
        first = sequence + 1
        for part in range(item.parts):
            sequence += 1
            yield item.content.envelope(Send(sequence, item, part, first), OPTIONS.part_bytes)
    ack = session_pb2.Header(ack=session_pb2.Ack(received=1, released=[1]))
    ack.ack.rows.add(sequence=1, row=0)
    yield join(ack.SerializeToString(), 0, (), 0)


VALID = tuple(valid_envelopes())


class Peer:
    """The receiving code of a session, as a stream drives it."""

    def __init__(self) -> None:
        self.delivered: list[Message] = []
        self.inbox = Inbox(OPTIONS, self.deliver, lambda urgent: None)
        self.outbox = Outbox(OPTIONS, lambda key, stalled: None, lambda: None)

    def deliver(self, message: Message, release: Release) -> None:
        self.delivered.append(message)

    def receive(self, data: bytes) -> None:
        raw, payload = scan(data, OPTIONS.max_header_bytes)
        header = parse_header(raw)
        if header.HasField("ack"):
            self.outbox.acknowledged(decode_ack(header.ack))
        else:
            self.inbox.receive(header, len(raw), payload)


@st.composite
def hostile_streams(draw: st.DrawFn) -> list[bytes]:
    """Valid envelopes with bytes changed, cut, repeated, swapped or put between them."""
    stream = list(VALID)
    for _ in range(draw(st.integers(1, 4))):
        index = draw(st.integers(0, len(stream) - 1))
        data = bytearray(stream[index])
        match draw(st.sampled_from(["change", "cut", "insert", "swap", "noise"])):
            case "change" if data:
                data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
            case "cut":
                del data[draw(st.integers(0, len(data))) :]
            case "insert":
                at = draw(st.integers(0, len(data)))
                data[at:at] = draw(st.binary(max_size=40))
            case "swap":
                other = draw(st.integers(0, len(stream) - 1))
                stream[index], stream[other] = stream[other], stream[index]
                continue
            case _:
                data = bytearray(draw(st.binary(max_size=200)))
        stream[index] = bytes(data)
    return stream


@given(hostile_streams())
@settings(max_examples=300)
def test_a_session_refuses_what_no_peer_sends(stream: list[bytes]) -> None:
    peer = Peer()
    tracemalloc.start()
    try:
        for data in stream:
            peer.receive(data)
    except (WireFormatError, EnvelopeMissing):
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak <= BOUND_PER_BYTE * sum(map(len, stream)) + SMALL_CHANGE
    assert peer.inbox.held_bytes <= OPTIONS.edge_credit_bytes + OPTIONS.envelope_bytes * 2


@given(st.binary(max_size=300))
@settings(max_examples=300)
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((WireFormatError, EnvelopeMissing)):
        Peer().receive(data)
    with pytest.raises(WireFormatError):
        expect(data, "connect")


@pytest.mark.parametrize("length", [OPTIONS.max_message_bytes + 1, 1 << 40, (1 << 64) - 1])
def test_an_announced_length_allocates_nothing(length: int) -> None:
    whole = session_pb2.Header(payload_bytes=length)
    whole.payload.key.request_id = "r"
    data = join(whole.SerializeToString(), 1, (bytes(4096),), 4096)
    tracemalloc.start()
    with pytest.raises(WireFormatError):
        Peer().receive(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < SMALL_CHANGE


def test_a_payload_in_crumbs_is_refused() -> None:
    first = session_pb2.Header(payload_bytes=20_000)
    first.payload.key.request_id = "r"
    peer = Peer()
    with pytest.raises(WireFormatError, match="part of 16 bytes"):
        peer.receive(join(first.SerializeToString(), 1, (bytes(16),), 16))


def test_a_sender_beyond_its_credit_is_refused() -> None:
    peer = Peer()
    encoder = Encoder(OPTIONS.max_header_bytes, OPTIONS.max_message_bytes)
    frame = StepFrame("s", 1, (Row(KEY, 0),), {"x": np.zeros((1, 200))})
    item = item_of(encoder.encode(frame), OPTIONS)

    def send_all() -> None:
        for sequence in range(1, 1000):
            peer.receive(item.content.envelope(Send(sequence, item, 0, sequence), 1024))

    with pytest.raises(WireFormatError, match="credit"):
        send_all()
    assert peer.inbox.held_bytes <= OPTIONS.edge_credit_bytes + OPTIONS.envelope_bytes + 256


# One header each, close to the limit, that unfolds into as many objects as it can.
UNFOLDING: Mapping[str, Callable[[int], bytes]] = {
    "nulls": lambda size: _list(b"\x0a\x00" * (size // 2)),
    "empty lists": lambda size: _list(b"\x0a\x02\x3a\x00" * (size // 4)),
    "empty texts": lambda size: _list(b"\x22\x00" * (size // 2)),
    "integers": lambda size: _list(b"\x12" + varint(size) + b"\x02" * size),
    "deep nesting": lambda size: _nested(size // 4),
}


def _list(items: bytes) -> bytes:
    return b"\x3a" + varint(len(items)) + items


def _nested(depth: int) -> bytes:
    tree = b""
    for _ in range(min(depth, 5_000)):
        tree = _list(b"\x0a" + varint(len(tree)) + tree)
    return tree


def unfold(kind: str, size: int) -> bytes:
    """An envelope with a payload message whose tree is one of UNFOLDING."""
    header = session_pb2.Header(sequence=1)
    header.payload.key.request_id = "r"
    tree = UNFOLDING[kind](size)
    # By hand: the generated class refuses to parse some of these.
    body = header.payload.SerializeToString() + b"\x1a" + varint(len(tree)) + tree
    return join(b"\x8a\x01" + varint(len(body)) + body, 1, (), 0)


# Protobuf's own memory is not Python's, so the peak of a process of its own is measured.
MEASURE = """
import sys
from omni_wire.decoder import Decoder, parse_header
from omni_wire.envelope import scan
from omni_wire.errors import WireFormatError

def peak():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

data = sys.stdin.buffer.read()
before = peak()
try:
    raw, payload = scan(data, 1 << 21)
    Decoder().decode(parse_header(raw), [payload])
except WireFormatError:
    pass
print((peak() - before) / len(data))
"""


@pytest.mark.parametrize("kind", UNFOLDING)
def test_a_header_unfolds_within_the_stated_bound(kind: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", MEASURE],
        input=unfold(kind, 1 << 20),
        capture_output=True,
        check=True,
    )
    assert float(run.stdout) <= BOUND_PER_BYTE
