"""Both halves of a session without a connection: what they copy, and what they cost alone."""

from __future__ import annotations

import resource
import tracemalloc
from collections.abc import Iterable

from omni_wire.decoder import parse_header
from omni_wire.edge import DEFAULT_OPTIONS
from omni_wire.envelope import scan
from omni_wire.handshake import Peer
from omni_wire.inbox import Inbox
from omni_wire.messages import Message, Payload, StepFrame
from omni_wire.outbox import Outbox
from omni_wire.receiver_state import Resume


def cpu_seconds() -> float:
    """CPU time of this process with all its threads, and so of both ends."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def session_seconds(steps: Iterable[StepFrame]) -> float:
    """CPU seconds that both halves of a session take for some steps."""
    outbox = _outbox()
    inbox = Inbox(DEFAULT_OPTIONS, lambda message, release: release(), lambda urgent: None)
    began = cpu_seconds()
    for frame in steps:
        outbox.post(frame)
        data = outbox.take()
        assert data is not None
        _receive(inbox, data)
    return cpu_seconds() - began


def copies(payload: Payload, payload_bytes: int) -> tuple[float, float]:
    """Memory that both halves allocate for a payload, in payloads: on its way out and in.

    All envelopes are kept, then all messages, so every copy is still there to be counted.
    """
    outbox = _outbox()
    delivered: list[Message] = []
    inbox = Inbox(
        DEFAULT_OPTIONS, lambda message, release: delivered.append(message), lambda urgent: None
    )
    tracemalloc.start()
    outbox.post(payload)
    envelopes = list(iter(outbox.take, None))
    sent, _ = tracemalloc.get_traced_memory()
    for data in envelopes:
        _receive(inbox, data)
    received, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    outbox.close()
    return sent / payload_bytes, (received - sent) / payload_bytes


def _outbox() -> Outbox:
    outbox = Outbox(DEFAULT_OPTIONS, lambda key, stalled: None, lambda: None)
    outbox.connected(Peer(Resume(0, (), ()), DEFAULT_OPTIONS.credits))
    return outbox


def _receive(inbox: Inbox, data: bytes) -> None:
    if inbox.repeat(data):
        return
    raw, payload = scan(data, DEFAULT_OPTIONS.max_header_bytes)
    inbox.receive(parse_header(raw), len(raw), payload)
