"""Edges of every kind between two fake instances, with a link that misbehaves in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from omni_wire.credentials import Plaintext
from omni_wire.edge import EdgeOptions, EdgeSender, Release
from omni_wire.errors import ServiceError
from omni_wire.grpc_edge import GrpcEdgeSender
from omni_wire.identity import Endpoint, RequestKey
from omni_wire.local_edge import LocalEdgeSender
from omni_wire.messages import EdgeMessage, OutputFrame, StepFrame, keys_of
from omni_wire.server import WireServer
from omni_wire.stage_server import SERVICE, StageServer
from tests.support.links import NO_FAULTS, Faults, FaultyLink
from tests.support.patience import PATIENT_SECONDS

SOURCE = Endpoint("thinker", "", 11)
KINDS = ("local", "grpc", "shared")
REMOTE_KINDS = ("grpc", "shared")
# Small enough that a few small arrays fill them; acknowledgements come at once.
SMALL = EdgeOptions(
    frame_bytes=64 * 1024,
    part_bytes=16 * 1024,
    edge_credit_bytes=256 * 1024,
    request_credit_bytes=64 * 1024,
    bulk_credit_bytes=1024 * 1024,
    reconnect_seconds=PATIENT_SECONDS,
    acknowledge_seconds=0.001,
    shared_bytes=512 * 1024,
)


@dataclass(slots=True)
class Recorder:
    """An EdgeReceiver that keeps what it gets; releases it at once unless `holds` says not to.

    Attributes:
        holds: whether to keep the credit of a request.
        kept: releases not called, with the request.
    """

    holds: Callable[[RequestKey], bool] = field(default=lambda key: False)
    messages: list[EdgeMessage] = field(default_factory=list)
    kept: list[tuple[RequestKey, Release]] = field(default_factory=list)
    lost: list[tuple[Endpoint, ServiceError]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def deliver(self, message: EdgeMessage, release: Release) -> None:
        self.messages.append(message)
        for key in keys_of(message):
            if self.holds(key):
                self.kept.append((key, release))
            else:
                release(key)
        self.changed.set()

    def on_source_lost(self, source: Endpoint, error: ServiceError) -> None:
        self.lost.append((source, error))
        self.changed.set()

    def release_kept(self) -> None:
        for key, release in self.kept:
            release(key)
        self.kept.clear()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for something this recorder sees; the limit only ends a broken test."""
        async with asyncio.timeout(PATIENT_SECONDS):
            while not reached():
                self.changed.clear()
                await self.changed.wait()

    async def count(self, messages: int) -> None:
        await self.until(lambda: len(self.messages) >= messages)

    def about(self, key: RequestKey) -> list[EdgeMessage]:
        return [message for message in self.messages if key in keys_of(message)]

    def chunks(self, key: RequestKey) -> list[int]:
        """Chunk ids of one request in the order of their arrival."""
        return [
            row.chunk_id
            for message in self.messages
            if isinstance(message, StepFrame | OutputFrame)
            for row in message.rows
            if row.key == key
        ]


@dataclass(slots=True)
class Reports:
    """EdgeEvents that are kept."""

    stalls: list[tuple[RequestKey, bool]] = field(default_factory=list)
    lost: list[ServiceError] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def on_stall(self, endpoint: Endpoint, key: RequestKey, stalled: bool) -> None:
        self.stalls.append((key, stalled))
        self.changed.set()

    def on_lost(self, endpoint: Endpoint, error: ServiceError) -> None:
        self.lost.append(error)
        self.changed.set()

    async def until_lost(self) -> ServiceError:
        async with asyncio.timeout(PATIENT_SECONDS):
            while not self.lost:
                self.changed.clear()
                await self.changed.wait()
        return self.lost[0]

    def stalled(self) -> Mapping[RequestKey, bool]:
        """The last report about each request."""
        return dict(self.stalls)


@dataclass(frozen=True, slots=True)
class Edge:
    """A connected edge.

    Attributes:
        sender: what is tested; `LocalEdgeSender` and `GrpcEdgeSender` both count bytes.
    """

    sender: LocalEdgeSender | GrpcEdgeSender
    receiver: Recorder
    reports: Reports
    link: FaultyLink

    async def settled(self) -> None:
        """Everything posted was received, and everything released is known to be."""
        async with asyncio.timeout(PATIENT_SECONDS):
            await self.sender.drain()
            while self.sender.unreleased_bytes:  # noqa: ASYNC110 - nobody announces it
                await asyncio.sleep(0.001)


@asynccontextmanager
async def connected(
    kind: str,
    directory: Path,
    *,
    receiver: Recorder | None = None,
    options: EdgeOptions = SMALL,
    faults: Faults = NO_FAULTS,
) -> AsyncIterator[Edge]:
    """An edge of one of KINDS whose sender runs until the end of the block."""
    receiver = receiver or Recorder()
    reports, link = Reports(), FaultyLink(faults)
    destination = Endpoint("talker@r1", f"unix:{directory}/talker.sock", 22)
    if kind == "local":
        local = LocalEdgeSender(destination, receiver, reports, options)
        async with running(local):
            yield Edge(local, receiver, reports, link)
        return
    if kind == "shared":
        options = replace(options, shared_directory=directory)
    async with hosted(destination, receiver, options):
        remote = GrpcEdgeSender(SOURCE, destination, Plaintext(), reports, options, wrap=link.wrap)
        async with running(remote):
            yield Edge(remote, receiver, reports, link)


@asynccontextmanager
async def hosted(
    destination: Endpoint,
    receiver: Recorder,
    options: EdgeOptions = SMALL,
    *,
    crash: bool = False,
) -> AsyncIterator[StageServer]:
    """A process that hosts the destination; one that crashes does not say that it ends."""
    stage = StageServer(destination.incarnation, options)
    stage.host(destination.instance, receiver)
    server = WireServer([SERVICE], [stage.handler()], options)
    server.listen(destination.address, Plaintext())
    async with server:
        yield stage
        if crash:
            await server.stop(0.0)
        stage.close()


@asynccontextmanager
async def running(sender: EdgeSender) -> AsyncIterator[None]:
    """The sender's `run` in a task group, closed at the end of the block."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sender.run())
        try:
            yield
        finally:
            await sender.close()
