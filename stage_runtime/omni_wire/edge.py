"""What a stage's shell sees of an edge, whatever carries it.

An edge leads from one instance to one other. Posting never waits: it keeps the order of each
request and promises none between requests. Memory is bounded by credits: every byte posted counts
until the far side releases it, per edge and per request, and a request that has used up its share
is reported as stalled so that its scheduler stops producing rows for it alone.

Everything here is called on the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from omni_wire.accounts import Credits
from omni_wire.envelope import OVERHEAD_BYTES
from omni_wire.errors import ServiceError
from omni_wire.identity import Endpoint, RequestKey
from omni_wire.messages import EdgeMessage, Message
from omni_wire.wire_version import Versions


@dataclass(frozen=True, slots=True)
class EdgeOptions:
    """Limits and times of one edge; the defaults suit a pair of stages on one or two nodes.

    Attributes:
        frame_bytes: largest payload that travels whole; larger frames are divided by rows.
        part_bytes: size of the parts in which larger payloads travel, a multiple of 1024.
        edge_credit_bytes: posted and unreleased bytes of all requests together, bulk payloads
            apart.
        request_credit_bytes: most that one request may hold of it; less while the edge is crowded.
        bulk_credit_bytes: unreleased bytes of payloads that travel in parts; one larger payload
            passes when it is alone.
        max_message_bytes: largest payload accepted or sent.
        max_header_bytes: largest part of a message that is not tensor bytes. Decoding one takes at
            most 64 times as much memory, whatever it holds.
        reconnect_seconds: how long a broken connection is retried before the peer counts as lost.
        abort_seconds: how long an abort waits for its acknowledgement.
        acknowledge_seconds: longest delay of an acknowledgement.
        shared_directory: where to share payloads with processes of the same host, on a file system
            in memory; None to send them inside the envelopes.
        shared_bytes: size of the file that a sender shares over one edge.
        versions: wire versions this side speaks.
    """

    frame_bytes: int = 2 * 1024 * 1024
    part_bytes: int = 512 * 1024
    edge_credit_bytes: int = 96 * 1024 * 1024
    request_credit_bytes: int = 24 * 1024 * 1024
    bulk_credit_bytes: int = 256 * 1024 * 1024
    max_message_bytes: int = 1024 * 1024 * 1024
    max_header_bytes: int = 1024 * 1024
    reconnect_seconds: float = 10.0
    abort_seconds: float = 5.0
    acknowledge_seconds: float = 0.025
    shared_directory: Path | None = None
    shared_bytes: int = 64 * 1024 * 1024
    versions: Versions = field(default_factory=Versions)

    @property
    def credits(self) -> Credits:
        """The credit this side grants and keeps to."""
        return Credits(self.edge_credit_bytes, self.request_credit_bytes, self.bulk_credit_bytes)

    @property
    def envelope_bytes(self) -> int:
        """Largest envelope; the limit for gRPC messages."""
        return max(self.frame_bytes, self.part_bytes) + self.max_header_bytes + OVERHEAD_BYTES


DEFAULT_OPTIONS = EdgeOptions()


class Release(Protocol):
    """Returns the credit of a delivered message to its sender."""

    def __call__(self, key: RequestKey | None = None) -> None:
        """Give back one request's share, or all that is left. Calling it again changes nothing."""


Deliver: TypeAlias = Callable[[Message, Release], None]


class EdgeEvents(Protocol):
    """What an edge reports to the shell that sends over it."""

    def on_stall(self, endpoint: Endpoint, key: RequestKey, stalled: bool) -> None:
        """A request has more posted than its credit, or no longer has."""

    def on_lost(self, endpoint: Endpoint, error: ServiceError) -> None:
        """The peer is gone for good; every request bound to it fails. Reported once."""


class EdgeSender(Protocol):
    """The sending end of an edge."""

    @property
    def endpoint(self) -> Endpoint:
        """The instance this edge leads to."""

    def post(self, message: EdgeMessage) -> None:
        """Send, keeping the order of each request. Never blocks; after a loss it drops the message.

        Raises:
            FrameTooLarge, WireFormatError: the message cannot be sent at all; nothing was posted.
        """

    def stalled(self, key: RequestKey) -> bool:
        """Whether messages of this request wait here for credit."""

    async def abort(self, key: RequestKey, reason: str) -> None:
        """Drop what waits here, tell the peer, and return once it acknowledged or is gone.

        Raises:
            TimeoutError: neither happened within `abort_seconds`; the abort stays posted.
        """

    def forget(self, key: RequestKey) -> None:
        """The request ended: drop its bookkeeping once its last message is acknowledged."""

    async def drain(self) -> None:
        """Return once every posted message is acknowledged, or the peer is gone."""

    async def close(self) -> None:
        """Stop sending and make `run` return; unacknowledged messages are dropped."""

    async def run(self) -> None:
        """Carry messages until closed or lost. Its owner runs it in a task group."""


class EdgeReceiver(Protocol):
    """The receiving end of the edges of one hosted instance."""

    def deliver(self, message: EdgeMessage, release: Release) -> None:
        """Take a message: each comes once, in its request's order. Must not block or raise."""

    def on_source_lost(self, source: Endpoint, error: ServiceError) -> None:
        """A sender is gone for good; requests that still wait for it fail."""


async def abort_within(seconds: float, received: asyncio.Future[None]) -> None:
    """Wait until an abort has been received.

    Raises:
        TimeoutError: it was not within `seconds`; it stays posted.
    """
    async with asyncio.timeout(seconds):
        await asyncio.shield(received)
