"""The outermost message as bytes, made and taken apart without the generated class.

The generated class would copy the payload twice on the way out and once on the way in. An envelope
is only three length-delimited fields, so it is joined from its parts and scanned for them; the
result is valid protobuf, and what the generated class writes is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from omni_wire.errors import WireFormatError
from omni_wire.payload import ALIGNMENT

HEADER_TAG = b"\x0a"
_PADDING_TAG = b"\x12"
_PAYLOAD_TAG = b"\x1a"
_HEADER, _PAYLOAD = 1, 3
_KNOWN_TAGS = frozenset(HEADER_TAG + _PADDING_TAG + _PAYLOAD_TAG)
# Header.sequence: field 1, fixed64. Nine bytes, appended to a header serialized without it.
SEQUENCE_TAG = b"\x09"
SEQUENCE_BYTES = 9
_VARINT_BITS = 70
# Upper bound of what surrounds header and payload.
OVERHEAD_BYTES = 64


def join(
    header: bytes, sequence: int, pieces: Sequence[memoryview | bytes], payload_bytes: int
) -> bytes:
    """One envelope as bytes: the single copy of the payload on its way out.

    Args:
        header: a serialized Header without its sequence number.
        sequence: the number; 0 is left out, as protobuf does.
        pieces: the payload, `payload_bytes` bytes together; it begins at a multiple of 16.
    """
    numbered = SEQUENCE_TAG + sequence.to_bytes(8, "little") if sequence else b""
    header_bytes = len(header) + len(numbered)
    size = varint(header_bytes)
    if not payload_bytes:
        return b"".join((HEADER_TAG, size, header, numbered))
    before = lead(1 + len(size) + header_bytes, payload_bytes)
    return b"".join((HEADER_TAG, size, header, numbered, before, *pieces))


@lru_cache(maxsize=64)
def lead(begin: int, payload_bytes: int) -> bytes:
    """What leads from a header that ends at `begin` to its payload: padding, tag and length."""
    tag = _PAYLOAD_TAG + varint(payload_bytes)
    gap = -(begin + len(tag)) % ALIGNMENT
    if not gap:
        return tag
    if gap == 1:
        gap += ALIGNMENT
    return b"".join((_PADDING_TAG, bytes((gap - 2,)), bytes(gap - 2), tag))


@lru_cache(maxsize=4096)
def varint(value: int) -> bytes:
    """A number in protobuf's variable-length form.

    Raises:
        ValueError: it is negative, or does not fit into 64 bits.
    """
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} has no place in 64 bits")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def scan(data: bytes, max_header_bytes: int) -> tuple[bytes, memoryview]:
    """Header and payload of an envelope, the payload as a view.

    Unknown fields are skipped, for newer peers may add some.

    Raises:
        WireFormatError: no envelope, a field twice, or a header over the limit.
    """
    view = memoryview(data)
    size = len(data)
    found: list[memoryview | None] = [None] * (_PAYLOAD + 1)
    position = 0
    while position < size:
        tag = data[position]
        if tag not in _KNOWN_TAGS:
            position = _skip(data, position)
            continue
        length, begin = read_varint(data, position + 1)
        position = begin + length
        if found[tag >> 3] is not None or position > size:
            raise WireFormatError(f"envelope with field {tag >> 3} twice or broken off")
        found[tag >> 3] = view[begin:position]
    header, payload = found[_HEADER], found[_PAYLOAD]
    if header is None or len(header) > max_header_bytes:
        raise WireFormatError("envelope without a header, or with one over the limit")
    return bytes(header), view[:0] if payload is None else payload


def _skip(data: bytes, position: int) -> int:
    """Where the field after this unknown one begins."""
    tag, position = read_varint(data, position)
    length, position = _field_length(data, position, tag & 7)
    if tag >> 3 <= _PAYLOAD or position + length > len(data):
        raise WireFormatError(f"envelope with a wrong or broken field {tag >> 3}")
    return position + length


def _field_length(data: bytes, position: int, wire_type: int) -> tuple[int, int]:
    """Length of a field's content and where it begins."""
    if wire_type == 2:
        return read_varint(data, position)
    if wire_type == 0:
        _, end = read_varint(data, position)
        return end - position, position
    if wire_type == 1:
        return 8, position
    if wire_type == 5:
        return 4, position
    raise WireFormatError(f"envelope with wire type {wire_type}")


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A number and where the next thing begins.

    Raises:
        WireFormatError: none that fits into 70 bits.
    """
    size = len(data)
    value = shift = 0
    while position < size and shift < _VARINT_BITS:
        byte = data[position]
        position += 1
        if byte < 0x80:
            return value | byte << shift, position
        value |= (byte & 0x7F) << shift
        shift += 7
    raise WireFormatError("envelope with a broken number")
