"""The session between a process group and a gateway: the group's end.

The group dials. Output and state go to the gateway, submissions and aborts come back; both ways
have the order, credit and replay of an edge, so a gateway that reads slowly for one client holds up
that request alone, and a broken stream loses nothing.
"""

from __future__ import annotations

import logging
from typing import Protocol

from omni_wire.credentials import Credentials
from omni_wire.dialer import Dialer, WrapStream
from omni_wire.edge import DEFAULT_OPTIONS, EdgeOptions, Release
from omni_wire.errors import ServiceError, StaleIncarnation, WireFormatError
from omni_wire.greeting import begin_connect, peer_of
from omni_wire.handshake import Peer, enclose
from omni_wire.identity import RequestKey
from omni_wire.messages import (
    Abort,
    AbortAck,
    Completed,
    Drain,
    Draining,
    Failed,
    GatewayMessage,
    GroupMessage,
    Hello,
    Message,
    OutputFrame,
    Ready,
    Stats,
    Submit,
    Welcome,
)
from omni_wire.session import Session
from omni_wire.v1.session_pb2 import Accept, Header

logger = logging.getLogger(__name__)

REGISTER = "/omni.v1.ControlService/Register"
SERVICE = "omni.v1.ControlService"
FROM_GROUP = (OutputFrame, Completed, Failed, Abort, AbortAck, Ready, Stats, Draining)
_FROM_GATEWAY = (Submit, Abort, Drain)


class GroupEvents(Protocol):
    """What a link reports to the group that dialled it."""

    def on_welcome(self, welcome: Welcome) -> None:
        """The gateway accepted the group; called again after each reconnection."""

    def on_gateway_message(self, message: GatewayMessage, release: Release) -> None:
        """Take a message. Each comes once, in its request's order. Must not block or raise."""

    def on_stall(self, key: RequestKey, stalled: bool) -> None:
        """A request has more output posted than the gateway takes, or no longer has."""

    def on_gateway_lost(self, gateway: str, error: ServiceError) -> None:
        """The gateway refused, or is gone beyond its lease: its requests are aborted.

        Args:
            gateway: its incarnation id; empty if it never answered.
        """


class GroupLink:
    """The group's end of one session with one gateway."""

    def __init__(
        self,
        hello: Hello,
        target: str,
        credentials: Credentials,
        events: GroupEvents,
        options: EdgeOptions = DEFAULT_OPTIONS,
        wrap: WrapStream | None = None,
    ) -> None:
        """`target` is the gateway's gRPC address; `wrap` is for tests that inject faults."""
        self._events = events
        self._options = options
        self._session = Session(options, self._deliver, events.on_stall)
        self._greeting = _GroupGreeting(hello, self._session, events)
        self._dialer = Dialer(target, REGISTER, credentials, self._session, self._greeting, wrap)

    @property
    def gateway(self) -> str:
        """Incarnation id of the gateway; empty until it first answered."""
        return self._greeting.gateway

    @property
    def held_bytes(self) -> int:
        """Bytes of output that wait here for credit."""
        return self._session.outbox.held_bytes

    def post(self, message: GroupMessage) -> None:
        """Send, keeping the order of each request. Never blocks; raises as EdgeSender.post."""
        self._session.outbox.post(message)

    def stalled(self, key: RequestKey) -> bool:
        """Whether output of this request waits here for credit."""
        return self._session.outbox.stalled(key)

    async def drain(self) -> None:
        """Return once everything posted has been received, or the gateway is gone."""
        await self._session.outbox.drain()

    def close(self) -> None:
        """Make `run` return; the gateway sees the end of the session."""
        self._dialer.close()

    async def run(self) -> None:
        """Keep the session until closed, refused, or the gateway's lease is over."""
        error = await self._dialer.run()
        if error is None:
            return
        logger.debug("gateway lost gateway=%s error=%s", self.gateway, error)
        self._events.on_gateway_lost(self.gateway, error)

    def _deliver(self, message: Message, release: Release) -> None:
        if not isinstance(message, _FROM_GATEWAY):
            raise WireFormatError(f"{type(message).__name__} from a gateway")
        self._events.on_gateway_message(message, release)


class _GroupGreeting:
    """Connect and Accept, the group's side."""

    def __init__(self, hello: Hello, session: Session, events: GroupEvents) -> None:
        self._hello = hello
        self._session = session
        self._events = events
        self.gateway = ""

    def connect(self) -> bytes:
        header = Header()
        begin_connect(header.connect, self._session)
        node = header.connect.group
        node.config_hash = self._hello.config_hash
        node.revision = self._hello.revision
        node.group = self._hello.group
        node.incarnation = self._hello.incarnation
        node.address = self._hello.address
        node.instances.extend(self._hello.instances)
        node.labels.update(self._hello.labels)
        return enclose(header)

    def accepted(self, accept: Accept) -> Peer:
        gateway = accept.gateway.gateway
        if self.gateway and gateway != self.gateway:
            raise StaleIncarnation(f"gateway {self.gateway} was replaced by {gateway}")
        self.gateway = gateway
        lease = accept.gateway.lease_seconds
        peer = peer_of(accept, self._session, lease)
        self._events.on_welcome(Welcome(gateway, accept.wire_version, lease))
        return peer
