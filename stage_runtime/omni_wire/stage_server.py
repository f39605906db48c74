"""The receiving end of all edges of one process: the StageService.

A process hosts instances; each edge leads from one instance elsewhere to one of them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
from grpc import aio

from omni_wire.decoder import decode_endpoint
from omni_wire.edge import DEFAULT_OPTIONS, EdgeOptions, EdgeReceiver, Release
from omni_wire.errors import (
    Draining,
    ServiceError,
    StaleIncarnation,
    Unavailable,
    WireFormatError,
)
from omni_wire.greeting import agree_version, begin_accept
from omni_wire.handshake import Peer, enclose, expect, resume_of
from omni_wire.identity import Endpoint
from omni_wire.messages import (
    Abort,
    Message,
    Open,
    Payload,
    StepFrame,
    StreamDone,
    StreamError,
)
from omni_wire.server_stream import HANDSHAKE_SECONDS, serve_stream, stream_handler
from omni_wire.session import Session
from omni_wire.session_table import Caller, OnLost, SessionTable
from omni_wire.shared_arena import Offer, SharedSegment
from omni_wire.streams import ByteStream
from omni_wire.v1 import session_pb2
from omni_wire.v1.session_pb2 import Header
from omni_wire.wire_version import SHARED_MEMORY_VERSION

logger = logging.getLogger(__name__)

SERVICE = "omni.v1.StageService"
_EDGE_MESSAGES = (Open, Payload, StepFrame, StreamDone, StreamError, Abort)


class StageServer:
    """Hosts the receiving ends of edges; add it to a server with `handler`."""

    def __init__(self, incarnation: int, options: EdgeOptions = DEFAULT_OPTIONS) -> None:
        """`incarnation` is this process's; edges meant for another are refused."""
        self._incarnation = incarnation
        self._options = options
        self._receivers: dict[str, EdgeReceiver] = {}
        self._table = SessionTable()

    def host(self, instance: str, receiver: EdgeReceiver) -> None:
        """Accept edges to an instance of this process from now on."""
        self._receivers[instance] = receiver

    def handler(self) -> grpc.GenericRpcHandler:
        """The service for `grpc.aio.Server.add_generic_rpc_handlers`."""
        return stream_handler(SERVICE, "Exchange", self._exchange)

    def close(self) -> None:
        """End every edge; senders are told that nobody will be here."""
        self._table.close(Draining("the process stops"))

    async def _exchange(self, _: object, context: aio.ServicerContext[Any, Any]) -> None:
        await serve_stream(context, self._serve)

    async def _serve(self, stream: ByteStream) -> None:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            connect = expect(await stream.read(), "connect").connect
        version = agree_version(connect, self._options.versions)
        source, destination = self._ends(connect)
        # Pods of one group have instances of one name; a process that comes back has its address.
        name = f"{source.instance} at {source.address}>{destination.instance}"
        caller = Caller(name, source.incarnation, connect.session)
        hosted = self._table.open(caller, lambda: self._make(source, destination))
        await self._table.detach(hosted)
        header = Header()
        begin_accept(header.accept, hosted.session, version)
        header.accept.shared = self._attach(hosted.session, connect.edge, version)
        await stream.write(enclose(header))
        peer = Peer(resume_of(connect.resume), self._options.credits)
        await self._table.carry(hosted, stream, peer)

    def _ends(self, connect: session_pb2.Connect) -> tuple[Endpoint, Endpoint]:
        """Both ends of the edge somebody dials.

        Raises:
            WireFormatError: it is no edge.
            StaleIncarnation: it is meant for a process before this one.
            Unavailable: the instance is not hosted here.
        """
        if connect.WhichOneof("purpose") != "edge":
            raise WireFormatError("stage was dialled for something else than an edge")
        source = decode_endpoint(connect.edge.source)
        destination = decode_endpoint(connect.edge.destination)
        if destination.incarnation != self._incarnation:
            raise StaleIncarnation(f"{destination.instance} runs in another process by now")
        if destination.instance not in self._receivers:
            raise Unavailable(f"{destination.instance} is not hosted here")
        return source, destination

    def _make(self, source: Endpoint, destination: Endpoint) -> tuple[Session, OnLost]:
        receiver = self._receivers[destination.instance]

        def deliver(message: Message, release: Release) -> None:
            if not isinstance(message, _EDGE_MESSAGES):
                raise WireFormatError(f"{type(message).__name__} on an edge")
            receiver.deliver(message, release)

        def on_lost(error: ServiceError) -> None:
            logger.info("edge ended source=%s reason=%s", source.instance, error)
            receiver.on_source_lost(source, error)

        return Session(self._options, deliver, lambda key, stalled: None), on_lost

    def _attach(self, session: Session, edge: session_pb2.ConnectEdge, version: int) -> bool:
        """Map the memory that the sender offers; whether it is mapped now."""
        directory = self._options.shared_directory
        if version < SHARED_MEMORY_VERSION or directory is None or not edge.HasField("segment"):
            return False
        if session.inbox.segment is not None:
            return session.inbox.segment.name == edge.segment.name
        offer = Offer(edge.segment.name, edge.segment.bytes, edge.segment.nonce)
        try:
            session.inbox.share(SharedSegment(directory, offer, self._options.shared_bytes))
        except OSError as error:
            logger.info("shared memory not attached reason=%s", error)
            return False
        return True
