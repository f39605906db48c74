"""Both ends of an edge and of bare gRPC streams in one process, for the wire's benchmark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
from grpc import aio

from omni_wire.credentials import Plaintext, open_channel
from omni_wire.dialer import channel_options
from omni_wire.edge import DEFAULT_OPTIONS, Release
from omni_wire.errors import ServiceError
from omni_wire.grpc_edge import GrpcEdgeSender
from omni_wire.identity import Endpoint, RequestKey, new_incarnation
from omni_wire.messages import EdgeMessage
from omni_wire.server import WireServer
from omni_wire.server_stream import stream_handler
from omni_wire.stage_server import SERVICE, StageServer
from omni_wire.v1 import session_pb2

BARE, BULKY, TYPED, ECHO = "Bare", "Bulky", "Typed", "Echo"

# The classes of the calls cannot be subscripted at run time.
ByteCall: TypeAlias = "aio.StreamStreamCall[bytes, bytes]"
RowCall: TypeAlias = "aio.StreamStreamCall[session_pb2.Envelope, bytes]"
Context: TypeAlias = "aio.ServicerContext[Any, Any]"


class Arrivals:
    """Counts what arrives and wakes whoever waits for a number of it."""

    def __init__(self) -> None:
        self.count = 0
        self._wanted = 0
        self._reached = asyncio.Event()

    def one(self) -> None:
        self.count += 1
        if self.count >= self._wanted:
            self._reached.set()

    async def reach(self, count: int) -> None:
        self._wanted = count
        if self.count < count:
            self._reached.clear()
            await self._reached.wait()


class Sink(Arrivals):
    """An EdgeReceiver that takes everything at once."""

    def deliver(self, message: EdgeMessage, release: Release) -> None:
        release()
        self.one()

    def on_source_lost(self, source: Endpoint, error: ServiceError) -> None:
        """Senders end with the benchmark."""


class Unstalled:
    """EdgeEvents of a sender that must never be held up."""

    def on_stall(self, endpoint: Endpoint, key: RequestKey, stalled: bool) -> None:
        raise RuntimeError("the benchmark sends more than the edge takes")

    def on_lost(self, endpoint: Endpoint, error: ServiceError) -> None:
        raise error


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything connected.

    Attributes:
        edge, sink: both ends of an edge.
        bare: a stream of bytes; `received` counts its messages at the other end.
        bulky: the same, but the other end keeps a payload's parts until it has all of them.
        typed: a stream of one generated message per row, counted by `rows_received`.
        echo: bytes that come back as they are.
    """

    edge: GrpcEdgeSender
    sink: Sink
    bare: ByteCall
    bulky: ByteCall
    received: Arrivals
    typed: RowCall
    rows_received: Arrivals
    echo: ByteCall


@asynccontextmanager
async def connected(address: str, parts: int) -> AsyncIterator[Bench]:
    """Both ends of everything; a large payload travels in so many `parts`."""
    sink, received, rows_received = Sink(), Arrivals(), Arrivals()
    incarnation = new_incarnation()
    stage = StageServer(incarnation)
    stage.host("sink", sink)
    server = WireServer(
        [SERVICE], [stage.handler(), *_bare_handlers(received, rows_received, parts)]
    )
    server.listen(address, Plaintext())
    there = Endpoint("sink", address, incarnation)
    edge = GrpcEdgeSender(Endpoint("source", "", 1), there, Plaintext(), Unstalled())
    channel = open_channel(address, Plaintext(), channel_options(DEFAULT_OPTIONS))
    async with server, channel:
        bare: ByteCall = channel.stream_stream(f"/{BARE}/Stream")()
        bulky: ByteCall = channel.stream_stream(f"/{BULKY}/Stream")()
        echo: ByteCall = channel.stream_stream(f"/{ECHO}/Stream")()
        rows: Any = channel.stream_stream(
            f"/{TYPED}/Stream", request_serializer=session_pb2.Envelope.SerializeToString
        )
        typed: RowCall = rows()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(edge.run())
            yield Bench(edge, sink, bare, bulky, received, typed, rows_received, echo)
            await edge.close()
        for call in (bare, bulky, echo, typed):
            call.cancel()
        stage.close()


def _bare_handlers(received: Arrivals, rows: Arrivals, parts: int) -> list[grpc.GenericRpcHandler]:
    async def take(_: object, context: Context) -> None:
        while await context.read() is not aio.EOF:
            received.one()

    async def collect(_: object, context: Context) -> None:
        kept: list[bytes] = []
        while isinstance(data := await context.read(), bytes):
            kept.append(data)
            if len(kept) == parts:
                kept.clear()
            received.one()

    async def take_rows(_: object, context: Context) -> None:
        while await context.read() is not aio.EOF:
            rows.one()

    async def send_back(_: object, context: Context) -> None:
        while isinstance(data := await context.read(), bytes):
            await context.write(data)

    typed: grpc.RpcMethodHandler[Any, bytes] = grpc.stream_stream_rpc_method_handler(
        take_rows, request_deserializer=session_pb2.Envelope.FromString
    )
    return [
        stream_handler(BARE, "Stream", take),
        stream_handler(BULKY, "Stream", collect),
        stream_handler(ECHO, "Stream", send_back),
        grpc.method_handlers_generic_handler(TYPED, {"Stream": typed}),
    ]
