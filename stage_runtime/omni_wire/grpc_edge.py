"""The sending end of an edge to another process."""

from __future__ import annotations

import logging
from functools import partial

from omni_wire.credentials import Credentials
from omni_wire.dialer import Dialer, WrapStream
from omni_wire.edge import DEFAULT_OPTIONS, EdgeEvents, EdgeOptions, Release, abort_within
from omni_wire.encoder import encode_endpoint
from omni_wire.errors import WireFormatError
from omni_wire.greeting import begin_connect, peer_of
from omni_wire.handshake import Peer, enclose
from omni_wire.identity import Endpoint, RequestKey
from omni_wire.messages import Abort, EdgeMessage, Message
from omni_wire.session import Session
from omni_wire.shared_arena import SharedArena
from omni_wire.v1.session_pb2 import Accept, Header
from omni_wire.wire_version import SHARED_MEMORY_VERSION

logger = logging.getLogger(__name__)

EXCHANGE = "/omni.v1.StageService/Exchange"


class GrpcEdgeSender:
    """An EdgeSender over gRPC, with payloads in shared memory where both sides can see it."""

    def __init__(
        self,
        source: Endpoint,
        destination: Endpoint,
        credentials: Credentials,
        events: EdgeEvents,
        options: EdgeOptions = DEFAULT_OPTIONS,
        wrap: WrapStream | None = None,
    ) -> None:
        """`wrap` puts something between session and stream; tests inject faults with it."""
        self._destination = destination
        self._events = events
        self._options = options
        on_stall = partial(events.on_stall, destination)
        self._session = Session(options, _nothing_comes_back, on_stall)
        greeting = _EdgeGreeting(source, destination, self._session)
        self._dialer = Dialer(
            destination.address, EXCHANGE, credentials, self._session, greeting, wrap
        )

    @property
    def endpoint(self) -> Endpoint:
        """The instance this edge leads to."""
        return self._destination

    @property
    def unreleased_bytes(self) -> int:
        """Bytes on their way or not yet released by the receiver."""
        return self._session.outbox.unreleased_bytes

    @property
    def sent_bytes(self) -> int:
        """Bytes sent since the edge began, what was sent again after a break included."""
        return self._session.outbox.sent_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes that wait here for credit."""
        return self._session.outbox.held_bytes

    def post(self, message: EdgeMessage) -> None:
        """See EdgeSender."""
        self._session.outbox.post(message)

    def stalled(self, key: RequestKey) -> bool:
        """See EdgeSender."""
        return self._session.outbox.stalled(key)

    async def abort(self, key: RequestKey, reason: str) -> None:
        """See EdgeSender."""
        received = self._session.outbox.abort(Abort(key, reason))
        await abort_within(self._options.abort_seconds, received)

    def forget(self, key: RequestKey) -> None:
        """See EdgeSender. Nothing is kept per request beyond what is unreleased."""

    async def drain(self) -> None:
        """See EdgeSender."""
        await self._session.outbox.drain()

    async def close(self) -> None:
        """See EdgeSender."""
        self._dialer.close()

    async def run(self) -> None:
        """See EdgeSender."""
        error = await self._dialer.run()
        if error is None:
            return
        logger.warning("edge lost destination=%s error=%s", self._destination.instance, error)
        self._events.on_lost(self._destination, error)


class _EdgeGreeting:
    """Connect and Accept of an edge."""

    def __init__(self, source: Endpoint, destination: Endpoint, session: Session) -> None:
        self._source = source
        self._destination = destination
        self._session = session
        self._answered = False

    def connect(self) -> bytes:
        header = Header()
        begin_connect(header.connect, self._session)
        edge = header.connect.edge
        encode_endpoint(self._source, edge.source)
        encode_endpoint(self._destination, edge.destination)
        arena = self._offered_arena()
        if arena is not None:
            edge.segment.name = arena.offer.name
            edge.segment.bytes = arena.offer.size
            edge.segment.nonce = arena.offer.nonce
        return enclose(header)

    def _offered_arena(self) -> SharedArena | None:
        """The memory to offer: made for the first stream, offered again on each later one."""
        options = self._session.options
        outbox = self._session.outbox
        if options.shared_directory is None or options.versions.newest < SHARED_MEMORY_VERSION:
            return None
        if outbox.arena is None and not self._answered:
            try:
                outbox.arena = SharedArena(options.shared_directory, options.shared_bytes)
            except OSError as error:
                logger.warning("no shared memory, sending inline error=%s", error)
        return outbox.arena

    def accepted(self, accept: Accept) -> Peer:
        outbox = self._session.outbox
        if outbox.arena is None and accept.shared:
            raise WireFormatError("peer attached memory that was not offered")
        if outbox.arena is not None:
            outbox.arena.attach()
        if outbox.arena is not None and not accept.shared:
            outbox.arena.close()
            outbox.arena = None
        self._answered = True
        return peer_of(accept, self._session)


def _nothing_comes_back(message: Message, release: Release) -> None:
    raise WireFormatError(f"{type(message).__name__} against the direction of the edge")
