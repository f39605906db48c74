"""How a stream begins: Connect, Accept, and the acknowledgements that follow, as envelopes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omni_wire.accounts import Credits
from omni_wire.decoder import parse_header
from omni_wire.envelope import join, scan
from omni_wire.errors import WireFormatError
from omni_wire.receiver_state import Owed, Resume
from omni_wire.v1 import session_pb2
from omni_wire.v1.session_pb2 import Header
from omni_wire.wire_version import Versions

# Lists of sequence numbers in a handshake may be long, yet a header is still bounded.
_MAX_HANDSHAKE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What an Ack says.

    Attributes:
        received: everything up to this sequence number has been received.
        released: messages whose credit is returned.
        rows: sequence number and row of rows whose credit is returned.
        freed: shared blocks nobody reads any more.
    """

    received: int
    released: Sequence[int]
    rows: Sequence[tuple[int, int]]
    freed: Sequence[int]


@dataclass(frozen=True, slots=True)
class Peer:
    """What a handshake says about the other side.

    Attributes:
        resume: how far it has received.
        credits: the limits it grants.
        in_use: shared blocks it still reads, by sequence number.
        patience_seconds: how long it may be out of reach, where it said so.
    """

    resume: Resume
    credits: Credits
    in_use: Sequence[int] = ()
    patience_seconds: float | None = None


def encode_ack(owed: Owed, freed: Sequence[int]) -> bytes:
    """An Ack as an envelope."""
    header = Header()
    ack = header.ack
    ack.received = owed.received
    ack.released.extend(owed.released)
    ack.freed.extend(freed)
    for sequence, row in owed.rows:
        ack.rows.add(sequence=sequence, row=row)
    return enclose(header)


def encode_close() -> bytes:
    """Close as an envelope."""
    header = Header()
    header.close.SetInParent()
    return enclose(header)


def decode_ack(ack: session_pb2.Ack) -> Acknowledgement:
    """What an Ack says."""
    rows = [(row.sequence, row.row) for row in ack.rows]
    return Acknowledgement(ack.received, ack.released[:], rows, ack.freed[:])


def fill_resume(node: session_pb2.Resume, resume: Resume, in_use: Sequence[int] = ()) -> None:
    """Write a receiver's state into an empty node."""
    node.received = resume.received
    node.unreleased.extend(resume.unreleased)
    node.in_use.extend(in_use)
    for sequence, row in resume.rows:
        node.rows.add(sequence=sequence, row=row)


def resume_of(node: session_pb2.Resume) -> Resume:
    """The receiver's state in a node."""
    rows = tuple((row.sequence, row.row) for row in node.rows)
    return Resume(node.received, tuple(node.unreleased), rows)


def credits_of(node: session_pb2.Credits) -> Credits:
    """The limits in a node.

    Raises:
        WireFormatError: one of them is 0, so that nothing could ever be sent.
    """
    credits = Credits(node.edge, node.request, node.bulk)
    if not (credits.edge and credits.request and credits.bulk):
        raise WireFormatError("peer grants no credit")
    return credits


def fill_credits(node: session_pb2.Credits, credits: Credits) -> None:
    """Write limits into an empty node."""
    node.edge = credits.edge
    node.request = credits.request
    node.bulk = credits.bulk


def fill_versions(connect: session_pb2.Connect, versions: Versions) -> None:
    """Write the versions a dialling side speaks."""
    connect.wire_version = versions.newest
    connect.oldest_wire_version = versions.oldest


def versions_of(connect: session_pb2.Connect) -> Versions:
    """The versions a dialling side speaks."""
    return Versions(connect.wire_version, connect.oldest_wire_version)


def enclose(header: Header) -> bytes:
    """A header that has no sequence number and no payload, as an envelope."""
    return join(header.SerializeToString(), 0, (), 0)


def expect(data: bytes | None, kind: str) -> Header:
    """The header of a stream's first envelope.

    Raises:
        WireFormatError: it is of another kind, or the stream ended before it.
    """
    if data is None:
        raise WireFormatError(f"stream ended before {kind}")
    header = parse_header(scan(data, _MAX_HANDSHAKE_BYTES)[0])
    if header.WhichOneof("body") != kind:
        raise WireFormatError(f"stream begins with {header.WhichOneof('body')}, not {kind}")
    return header
