"""Everything the stages of one group send: edges to other instances and links to gateways.

Edges are opened at the first message, one per pair of instances and incarnation, and live in the
group's task group. A peer that is gone for good is remembered, so that no request waits on a new
connection to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from omni_runtime.logging import EventLogger
from omni_runtime.stage_events import GatewayPeer, Outgoing, Peer
from omni_runtime.tombstones import Tombstones
from omni_wire.edge import EdgeEvents, EdgeSender
from omni_wire.errors import InstanceLost, ServiceError
from omni_wire.identity import Endpoint, RequestKey
from omni_wire.messages import (
    AbortAck,
    Completed,
    EdgeMessage,
    Failed,
    GroupMessage,
    OutputFrame,
)

logger = EventLogger(__name__)


class MeasuredEdge(EdgeSender, Protocol):
    """An edge that knows how much it holds."""

    @property
    def unreleased_bytes(self) -> int:
        """Bytes sent or under way whose credit has not come back."""
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes that wait here for credit."""
        ...

    @property
    def sent_bytes(self) -> int:
        """Bytes sent since the edge began."""
        ...


Connect = Callable[[str, Endpoint, EdgeEvents], MeasuredEdge]
"""Opens the edge from an instance (by name) to an endpoint; `run` of the edge is started by the
outlet.
"""


class GatewayLink(Protocol):
    """The sending side of a group's stream to one gateway."""

    def post(self, message: GroupMessage) -> None:
        """Send, keeping the order of each request; never blocks."""
        ...


class StallReceiver(Protocol):
    """What the outlet tells a stage."""

    def on_stall(self, peer: Peer, key: RequestKey, stalled: bool) -> None:
        """A request's output to a peer ran out of credit, or has credit again."""
        ...

    def on_source_lost(self, source: Endpoint, error: ServiceError) -> None:
        """An instance the stage sends to is gone for good."""
        ...


@dataclass(frozen=True, slots=True)
class _EdgeWatch:
    """Passes what one edge reports to the stage that sends over it."""

    outlet: GroupOutlet
    source: str

    def on_stall(self, endpoint: Endpoint, key: RequestKey, stalled: bool) -> None:
        self.outlet.stages[self.source].on_stall(endpoint, key, stalled)

    def on_lost(self, endpoint: Endpoint, error: ServiceError) -> None:
        self.outlet.lose(self.source, endpoint, error)


class GroupOutlet:
    """Outlet of all stages of a group (`omni_runtime.stage.Outlet`).

    Args:
        connect: opens edges.
        tasks: the group's task group, in which edges run.

    Attributes:
        stages: the hosted stages by instance name; filled by the group before anything is sent.
        gateways: links by gateway incarnation id; kept by the registration.
    """

    def __init__(self, connect: Connect, tasks: asyncio.TaskGroup) -> None:
        self.stages: Mapping[str, StallReceiver] = {}
        self.gateways: dict[str, GatewayLink] = {}
        self._connect = connect
        self._tasks = tasks
        self._edges: dict[tuple[str, Endpoint], MeasuredEdge] = {}
        self._lost: Tombstones[tuple[str, Endpoint], ServiceError] = Tombstones(1000)
        self._unacknowledged: dict[RequestKey, set[str]] = {}

    def __len__(self) -> int:
        return len(self._edges)

    @property
    def edges(self) -> Mapping[tuple[str, Endpoint], MeasuredEdge]:
        """Open edges by source instance and endpoint."""
        return self._edges

    def post(self, source: str, peer: Peer, message: Outgoing) -> None:
        """Send a message of a hosted instance.

        What is for a gateway that is gone is dropped: its requests are being aborted anyway.

        Raises:
            InstanceLost: the peer is gone for good.
            ServiceError: the message can never be sent; nothing was.
        """
        if isinstance(peer, GatewayPeer):
            link = self.gateways.get(peer.gateway)
            if link is not None:
                link.post(_for_gateway(message))
            return
        self._edge(source, peer).post(_for_edge(message))

    def abort(self, source: str, peer: Peer, key: RequestKey, reason: str) -> None:
        """Drop what waits for a request on the way to a peer, and tell the peer."""
        # A gateway needs no word: it takes what is left of a request that ended, and drops it.
        edge = None if isinstance(peer, GatewayPeer) else self._edges.get((source, peer))
        if edge is not None:
            self._tasks.create_task(_abort(edge, key, reason))

    def forget(self, source: str, peer: Peer, key: RequestKey) -> None:
        """Nothing more of a request goes to a peer."""
        edge = None if isinstance(peer, GatewayPeer) else self._edges.get((source, peer))
        if edge is not None:
            edge.forget(key)

    def expect_acknowledgements(self, key: RequestKey) -> None:
        """A gateway aborts a request: tell it once every hosted stage has let go."""
        self._unacknowledged[key] = set(self.stages)

    def acknowledge(self, source: str, key: RequestKey) -> None:
        """The instance `source` holds nothing of an aborted request any more."""
        waiting = self._unacknowledged.get(key)
        if waiting is None:
            return
        waiting.discard(source)
        if waiting:
            return
        del self._unacknowledged[key]
        link = self.gateways.get(key.gateway)
        if link is not None:
            link.post(AbortAck(key))

    def drop_gateway(self, gateway: str) -> None:
        """A gateway is gone: nobody waits for its acknowledgements any more."""
        self.gateways.pop(gateway, None)
        for key in [key for key in self._unacknowledged if key.gateway == gateway]:
            del self._unacknowledged[key]

    def lose(self, source: str, endpoint: Endpoint, error: ServiceError) -> None:
        """An edge reports that its peer is gone for good."""
        self._edges.pop((source, endpoint), None)
        self._lost.add((source, endpoint), error)
        self.stages[source].on_source_lost(endpoint, error)

    async def drain(self) -> None:
        """Return once every posted message has been acknowledged, or its peer is gone."""
        await asyncio.gather(*(edge.drain() for edge in list(self._edges.values())))

    async def close(self) -> None:
        """Close every edge; what was not acknowledged is dropped."""
        edges, self._edges = list(self._edges.values()), {}
        await asyncio.gather(*(edge.close() for edge in edges))

    def _edge(self, source: str, endpoint: Endpoint) -> EdgeSender:
        edge = self._edges.get((source, endpoint))
        if edge is not None:
            return edge
        error = self._lost.get((source, endpoint))
        if error is not None:
            raise InstanceLost(f"{endpoint.instance} is gone: {error}", stage=endpoint.instance)
        edge = self._connect(source, endpoint, _EdgeWatch(self, source))
        self._edges[source, endpoint] = edge
        self._tasks.create_task(edge.run(), name=f"edge {source} -> {endpoint.instance}")
        return edge


async def _abort(edge: EdgeSender, key: RequestKey, reason: str) -> None:
    try:
        await edge.abort(key, reason)
    except TimeoutError:
        # It stays posted and is sent again after a reconnect; the peer hears from the gateway too.
        logger.warning("abort not acknowledged", request=key, peer=edge.endpoint.instance)
    edge.forget(key)


def _for_gateway(message: Outgoing) -> GroupMessage:
    if isinstance(message, OutputFrame | Completed | Failed):
        return message
    raise TypeError(f"{type(message).__name__} is not for a gateway")


def _for_edge(message: Outgoing) -> EdgeMessage:
    if isinstance(message, OutputFrame | Completed | Failed):
        raise TypeError(f"{type(message).__name__} is not for a stage")
    return message
