"""What Connect and Accept have in common for every kind of session."""

from __future__ import annotations

from omni_wire.handshake import (
    Peer,
    credits_of,
    fill_credits,
    fill_resume,
    fill_versions,
    resume_of,
    versions_of,
)
from omni_wire.session import Session
from omni_wire.v1 import session_pb2
from omni_wire.wire_version import Versions


def begin_connect(connect: session_pb2.Connect, session: Session) -> None:
    """Fill the common part of the dialling side's first message."""
    fill_versions(connect, session.options.versions)
    connect.session = session.number
    resume, _ = session.inbox.resume()
    fill_resume(connect.resume, resume)


def begin_accept(accept: session_pb2.Accept, session: Session, version: int) -> None:
    """Fill the common part of the accepting side's first message."""
    accept.wire_version = version
    resume, in_use = session.inbox.resume()
    fill_resume(accept.resume, resume, in_use)
    fill_credits(accept.credits, session.options.credits)


def peer_of(
    accept: session_pb2.Accept, session: Session, patience_seconds: float | None = None
) -> Peer:
    """What the accepting side said; `patience_seconds` as in Peer.

    Raises:
        VersionMismatch: it chose a version that was not offered.
        WireFormatError: it grants no credit.
    """
    session.options.versions.agree(Versions(accept.wire_version, accept.wire_version))
    credits = credits_of(accept.credits)
    in_use = accept.resume.in_use[:]
    return Peer(resume_of(accept.resume), credits, in_use, patience_seconds)


def agree_version(connect: session_pb2.Connect, session_versions: Versions) -> int:
    """The version to use with a dialling side; raises VersionMismatch as `Versions.agree`."""
    return session_versions.agree(versions_of(connect))
