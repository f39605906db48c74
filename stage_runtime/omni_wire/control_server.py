"""The gateway's end of the sessions with process groups: the ControlService."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

import grpc
from grpc import aio

from omni_wire.control_link import FROM_GROUP, SERVICE
from omni_wire.edge import DEFAULT_OPTIONS, EdgeOptions, Release, abort_within
from omni_wire.errors import Draining, ServiceError, StaleIncarnation, WireFormatError
from omni_wire.greeting import agree_version, begin_accept
from omni_wire.handshake import Peer, enclose, expect, resume_of
from omni_wire.identity import RequestKey
from omni_wire.messages import Abort, GatewayMessage, GroupMessage, Hello, Message
from omni_wire.server_stream import HANDSHAKE_SECONDS, serve_stream, stream_handler
from omni_wire.session import Session
from omni_wire.session_table import Caller, Hosted, OnLost, SessionTable
from omni_wire.streams import ByteStream
from omni_wire.v1 import session_pb2
from omni_wire.v1.session_pb2 import Header

logger = logging.getLogger(__name__)


class GroupRegistry(Protocol):
    """What a gateway does with the groups that dial it."""

    def check(self, hello: Hello) -> None:
        """Refuse a group by raising a ServiceError, such as ConfigMismatch."""

    def on_group(self, group: GroupConnection) -> None:
        """A group registered. One at the same address replaces the one before, lost first."""

    def on_group_cut(self, group: GroupConnection, cut: bool) -> None:
        """The stream of a group broke, or another carries its session on."""

    def on_group_message(
        self, group: GroupConnection, message: GroupMessage, release: Release
    ) -> None:
        """Take a message. Each comes once, in its request's order. Must not block or raise."""

    def on_group_stall(self, group: GroupConnection, key: RequestKey, stalled: bool) -> None:
        """A request has more posted to the group than its credit, or no longer has."""

    def on_group_lost(self, group: GroupConnection, error: ServiceError) -> None:
        """The group is gone for good; requests bound to its instances fail. Reported once."""


class GroupConnection:
    """One registered group, for as long as its process lives and can be reached."""

    def __init__(self, hello: Hello, registry: GroupRegistry, options: EdgeOptions) -> None:
        self.hello = hello
        self._registry = registry
        self._options = options
        self.session = Session(options, self._deliver, self._stalled)

    @property
    def held_bytes(self) -> int:
        """Bytes that wait here for credit."""
        return self.session.outbox.held_bytes

    def post(self, message: GatewayMessage) -> None:
        """Send, keeping the order of each request. Never blocks; raises as EdgeSender.post."""
        self.session.outbox.post(message)

    def stalled(self, key: RequestKey) -> bool:
        """Whether messages of this request wait here for credit."""
        return self.session.outbox.stalled(key)

    async def abort(self, key: RequestKey, reason: str) -> None:
        """Tell the group to abort; returns once it has received that, or is gone.

        That it has let go of the request is a message of its own, AbortAck.

        Raises:
            TimeoutError: it has not within `abort_seconds`; the abort stays posted.
        """
        received = self.session.outbox.abort(Abort(key, reason))
        await abort_within(self._options.abort_seconds, received)

    async def drain(self) -> None:
        """Return once everything posted has been received, or the group is gone."""
        await self.session.outbox.drain()

    def _deliver(self, message: Message, release: Release) -> None:
        if not isinstance(message, FROM_GROUP):
            raise WireFormatError(f"{type(message).__name__} from a group")
        self._registry.on_group_message(self, message, release)

    def _stalled(self, key: RequestKey, stalled: bool) -> None:
        self._registry.on_group_stall(self, key, stalled)


class ControlServer:
    """Hosts the gateway's ends; add it to a server with `handler`."""

    def __init__(
        self, gateway: str, registry: GroupRegistry, options: EdgeOptions = DEFAULT_OPTIONS
    ) -> None:
        """`gateway` is the gateway's incarnation id; the lease is `options.reconnect_seconds`."""
        self._gateway = gateway
        self._registry = registry
        self._options = options
        self._table = SessionTable()
        self._connections: dict[Session, GroupConnection] = {}

    def handler(self) -> grpc.GenericRpcHandler:
        """The service for `grpc.aio.Server.add_generic_rpc_handlers`."""
        return stream_handler(SERVICE, "Register", self._register)

    def dismiss(self, connection: GroupConnection, error: ServiceError) -> None:
        """End the session of a group that does not speak any more; it may register anew."""
        self._table.dismiss(connection.session, error)

    def close(self) -> None:
        """End every session; groups are told that nobody will be here."""
        self._table.close(Draining("the gateway stops"))

    async def _register(self, _: object, context: aio.ServicerContext[Any, Any]) -> None:
        await serve_stream(context, self._serve)

    async def _serve(self, stream: ByteStream) -> None:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            connect = expect(await stream.read(), "connect").connect
        version = agree_version(connect, self._options.versions)
        hello = _hello(connect)
        self._registry.check(hello)
        # Pods of one Deployment share the name of their group; an address has one process.
        caller = Caller(f"{hello.group} at {hello.address}", hello.incarnation, connect.session)
        hosted = self._table.open(caller, lambda: self._make(hello))
        await self._table.detach(hosted)
        await stream.write(self._accept(hosted, version))
        peer = Peer(resume_of(connect.resume), self._options.credits)
        connection = self._connections.get(hosted.session)
        if connection is None:
            raise StaleIncarnation(f"{caller.name} was replaced while it dialled")
        self._registry.on_group_cut(connection, False)
        try:
            await self._table.carry(hosted, stream, peer)
        finally:
            if hosted.carrying is None:
                self._registry.on_group_cut(connection, True)

    def _make(self, hello: Hello) -> tuple[Session, OnLost]:
        connection = GroupConnection(hello, self._registry, self._options)

        def on_lost(error: ServiceError) -> None:
            logger.info("group ended group=%s reason=%s", hello.group, error)
            del self._connections[connection.session]
            self._registry.on_group_lost(connection, error)

        self._connections[connection.session] = connection
        self._registry.on_group(connection)
        return connection.session, on_lost

    def _accept(self, hosted: Hosted, version: int) -> bytes:
        header = Header()
        begin_accept(header.accept, hosted.session, version)
        header.accept.gateway.gateway = self._gateway
        header.accept.gateway.lease_seconds = self._options.reconnect_seconds
        return enclose(header)


def _hello(connect: session_pb2.Connect) -> Hello:
    """Who dials.

    Raises:
        WireFormatError: no group, or one without a name or incarnation.
    """
    node = connect.group
    if connect.WhichOneof("purpose") != "group" or not node.group:
        raise WireFormatError("gateway was dialled by no group")
    if not 0 < node.incarnation < 1 << 63:
        raise WireFormatError("group without an incarnation")
    return Hello(
        wire_version=connect.wire_version,
        config_hash=node.config_hash,
        revision=node.revision,
        group=node.group,
        incarnation=node.incarnation,
        address=node.address,
        instances=tuple(node.instances),
        labels=dict(node.labels),
    )
