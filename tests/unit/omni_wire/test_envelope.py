"""Envelopes are made and taken apart past the generated class, and mean the same to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni_wire.envelope import join, scan, varint
from omni_wire.errors import WireFormatError
from omni_wire.payload import ALIGNMENT
from omni_wire.v1 import control_pb2, session_pb2

LIMIT = 1 << 20

readies = st.builds(control_pb2.Ready, instance=st.text(max_size=3), reason=st.text(max_size=300))
headers = readies.map(lambda ready: session_pb2.Header(ready=ready).SerializeToString())
sequences = st.integers(0, (1 << 64) - 1)
payloads = st.lists(st.binary(max_size=200), max_size=4)


@given(headers, sequences, payloads)
def test_the_generated_class_reads_what_is_joined(
    header: bytes, sequence: int, pieces: list[bytes]
) -> None:
    payload = b"".join(pieces)
    data = join(header, sequence, [memoryview(piece) for piece in pieces], len(payload))
    parsed = session_pb2.Envelope.FromString(data)
    expected = session_pb2.Header.FromString(header)
    expected.sequence = sequence
    assert (parsed.header, parsed.payload) == (expected, payload)


@given(headers, sequences, st.binary(max_size=500))
def test_what_the_generated_class_writes_is_scanned(
    header: bytes, sequence: int, payload: bytes
) -> None:
    envelope = session_pb2.Envelope(payload=payload, padding=b"\0\0")
    envelope.header.MergeFromString(header)
    envelope.header.sequence = sequence
    raw, found = scan(envelope.SerializeToString(), LIMIT)
    assert session_pb2.Header.FromString(raw) == envelope.header
    assert found == payload


@given(headers, sequences, st.binary(min_size=1, max_size=500))
def test_a_joined_payload_begins_where_tensors_can_be_used(
    header: bytes, sequence: int, payload: bytes
) -> None:
    data = join(header, sequence, [payload], len(payload))
    assert (len(data) - len(payload)) % ALIGNMENT == 0
    assert scan(data, LIMIT)[1] == payload


def test_fields_of_newer_peers_are_skipped() -> None:
    unknown = (
        b"\xa0\x06\x96\x01" + b"\xa1\x06" + b"8" * 8 + b"\xa5\x06" + b"4" * 4 + b"\xa2\x06\x02hi"
    )
    data = unknown + join(b"\x10\x05", 0, (), 0) + unknown
    assert scan(data, LIMIT) == (b"\x10\x05", memoryview(b""))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x1a\x01a", id="no header"),
        pytest.param(b"\x0a\x00\x0a\x00", id="two headers"),
        pytest.param(b"\x0a\x00\x1a\x01a\x1a\x01b", id="two payloads"),
        pytest.param(b"\x0a\x05abc", id="header broken off"),
        pytest.param(b"\x0a\x00\x1a\xff\xff\xff\xff\x0f", id="payload longer than the message"),
        pytest.param(b"\x0a" + b"\xff" * 10, id="endless length"),
        pytest.param(b"\x08\x01", id="header of another wire type"),
        pytest.param(b"\x0a\x00\x23", id="group"),
        pytest.param(b"\x0a\x00\xa2\x06\x09a", id="unknown field broken off"),
        pytest.param(b"\x02\x00", id="field zero"),
        pytest.param(b"\x0a" + varint(LIMIT + 1) + bytes(LIMIT + 1), id="header over the limit"),
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(WireFormatError):
        scan(data, LIMIT)


@given(st.integers(0, (1 << 64) - 1))
def test_numbers_have_protobuf_s_form(value: int) -> None:
    message = session_pb2.Header(payload_bytes=value)
    assert message.SerializeToString() == (b"\x10" + varint(value) if value else b"")
