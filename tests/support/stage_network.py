"""A pipeline of real stage state machines and real schedulers, with no thread, socket or clock.

Every message waits in the network until a test delivers it, so a test decides the order of
everything that the real runtime leaves open: which edge moves next, when a scheduler runs, when a
process dies. What the runtime does promise is kept: per edge and request, messages arrive in order,
each once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from omni_config.planning.instances import expand_replicas
from omni_config.schema import PipelineConfig
from omni_runtime.group_stages import scheduler_of
from omni_runtime.scheduler import OutboxMessage
from omni_runtime.stage_events import (
    AbortAsked,
    AbortPeer,
    Acknowledge,
    Delivered,
    Ended,
    Event,
    ForgetPeer,
    GatewayPeer,
    GiveBack,
    Made,
    Outgoing,
    Peer,
    PeerLost,
    StallChanged,
    Submitted,
    ToPeer,
    ToScheduler,
)
from omni_runtime.stage_state import StageState
from omni_runtime.stage_wiring import load_hook, wire_stage
from omni_wire.edge import Release
from omni_wire.errors import InstanceLost
from omni_wire.identity import Endpoint, RequestKey, stage_of
from omni_wire.messages import Abort, Completed, Failed, OutputFrame, RequestView, keys_of
from tests.support.stage_calls import Call, CallBook

CREDIT_ROWS = 2
"""Rows of one request on one edge before it counts as stalled."""


class ListOutbox(deque[OutboxMessage]):
    """An outbox that keeps what was put."""

    put = deque.append


@dataclass
class Node:
    """One stage instance."""

    endpoint: Endpoint
    state: StageState
    scheduler: Any
    outbox: ListOutbox = field(default_factory=ListOutbox)


@dataclass
class Edge:
    """Messages under way between two instances, and what their credit is."""

    source: str
    peer: Peer
    waiting: list[Outgoing] = field(default_factory=list)
    unreleased: dict[RequestKey, int] = field(default_factory=dict)
    stalled: set[RequestKey] = field(default_factory=set)

    def deliverable(self) -> list[int]:
        """Return the messages that are first in line for each of their requests."""
        seen: set[RequestKey] = set()
        found = []
        for index, message in enumerate(self.waiting):
            keys = keys_of(message)
            if seen.isdisjoint(keys):
                found.append(index)
            seen.update(keys)
        return found


class Network:
    """Stages, edges and one gateway of a pipeline. The gateway here is the simplest there could be.

    Args:
        pipeline: a pipeline class whose factories need no arguments.
    """

    def __init__(self, pipeline: type[PipelineConfig]) -> None:
        settings: dict[str, Any] = {"model_path": "none"}
        self.config = pipeline(**settings)
        self.nodes: dict[str, Node] = {}
        self.edges: dict[tuple[str, Peer], Edge] = {}
        self.book = CallBook(self.config, self._failed)
        self.now = 0.0
        self._topology = expand_replicas(self.config)
        self._incarnation = 0
        self._turn = 0
        self._events: deque[tuple[str, Event]] = deque()
        self._handling = False
        for process in dict.fromkeys(it.process for it in self._topology.instances):
            self.start(process)

    def members(self, process: str) -> list[str]:
        """Return the instances of a process."""
        return [it.name for it in self._topology.instances if it.process == process]

    def start(self, process: str) -> int:
        """Start a process; return its incarnation."""
        self._incarnation += 1
        for instance in self.members(process):
            config = self.config.by_name[stage_of(instance)]
            self.nodes[instance] = Node(
                Endpoint(instance, f"unix:/{process}", self._incarnation),
                StageState(wire_stage(config, instance)),
                scheduler_of(load_hook(config.factory_path)()),
            )
        return self._incarnation

    def kill(self, process: str) -> None:
        """Kill a process: its requests, and all that was under way to or from it, are gone."""
        gone = [self.nodes.pop(instance).endpoint for instance in self.members(process)]
        for (source, peer), edge in list(self.edges.items()):
            if source in self.members(process) or peer in gone:
                del self.edges[source, peer]
                edge.unreleased.clear()
        lost = InstanceLost(f"{process} was killed")
        for name in list(self.nodes):
            for endpoint in gone:
                self.happen(name, PeerLost(endpoint, lost))
        self.process_lost(gone, lost)

    def submit(self, request_id: str, **view: Any) -> Call:
        """Send a request to the entry stage, bound to the replicas whose turn it is."""
        self._turn += 1
        bindings = {}
        for stage in self.config.stages:
            copies = self._topology.instances_of(stage.name)
            alive = [name for name in copies if name in self.nodes]
            bindings[stage.name] = self.nodes[alive[self._turn % len(alive)]].endpoint
        call = self.book.open(request_id, bindings, RequestView(**view))
        entry = bindings[self.config.entry].instance
        self.happen(entry, Submitted(call.payload, lambda key=None: None))
        return call

    def abort(self, call: Call, reason: str = "the client left") -> None:
        """Abort a request at every instance, as a gateway does."""
        if not call.ended:
            call.aborted = True
        self._broadcast_abort(call, reason)

    def hear(self, message: Outgoing, source: Endpoint, release: Release) -> None:
        """The gateway takes a message."""
        del source
        self.book.receive(message)
        release()

    def let_go(self, endpoint: Endpoint, key: RequestKey) -> None:
        """The gateway hears that an instance holds nothing of an aborted request any more."""
        self.book.calls[key].unacknowledged.discard(endpoint)

    def process_lost(self, gone: Collection[Endpoint], error: InstanceLost) -> None:
        """The gateway hears that a process died."""
        for call in self.book.calls.values():
            call.unacknowledged.difference_update(gone)
            if not call.ended and not set(gone).isdisjoint(call.bindings.values()):
                self.book.fail(call, error.info)

    def possible(self) -> list[Callable[[], None]]:
        """Return everything that could happen next."""
        return list(self._possible())

    def settle(self) -> None:
        """Let everything happen, oldest edge first, until nothing more can."""
        for _ in range(100_000):
            actions = self.possible()
            if not actions:
                return
            actions[0]()
        raise AssertionError("the network does not come to rest")

    def happen(self, instance: str, event: Event) -> None:
        """Apply an event to one stage, and then whatever it sets off at others."""
        self._events.append((instance, event))
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                self._handle(*self._events.popleft())
        finally:
            self._handling = False

    def _handle(self, instance: str, event: Event) -> None:
        node = self.nodes.get(instance)
        if node is None:
            return
        for instruction in node.state.handle(event, self.now):
            match instruction:
                case ToScheduler(message):
                    node.scheduler.inbox.put(message)
                case ToPeer(peer, message):
                    self._post(instance, peer, message)
                case GiveBack(release, key):
                    release(key)
                case AbortPeer(peer, key, reason):
                    self._drop(instance, peer, key, reason)
                case Acknowledge(key):
                    self.let_go(node.endpoint, key)
                case ForgetPeer() | Ended():
                    pass

    def assert_nothing_left(self) -> None:
        """Check that no stage, scheduler or edge holds anything of any request."""
        for name, node in self.nodes.items():
            assert node.state.in_flight == 0, f"{name} still holds requests"
            assert not node.outbox, f"{name} still has output"
            assert not len(node.scheduler.inbox), f"{name} still has input"
            assert node.scheduler.in_flight == 0, f"the scheduler of {name} still holds requests"
        for edge in self.edges.values():
            held = {key: count for key, count in edge.unreleased.items() if count}
            assert not held, f"{edge.source} -> {edge.peer} never got credit back: {held}"
        waiting = [str(call.key) for call in self.book.calls.values() if call.unacknowledged]
        assert not waiting, f"aborts were never acknowledged: {waiting}"

    def _possible(self) -> Iterator[Callable[[], None]]:
        for name, node in self.nodes.items():
            if node.outbox:
                yield partial(self._make, name)
            if len(node.scheduler.inbox) or node.scheduler.can_step:
                yield partial(node.scheduler.advance, node.outbox)
        for edge in list(self.edges.values()):
            for index in edge.deliverable():
                yield partial(self._deliver, edge, index)

    def _make(self, name: str) -> None:
        self.happen(name, Made(self.nodes[name].outbox.popleft()))

    def _post(self, source: str, peer: Peer, message: Outgoing) -> None:
        if isinstance(peer, Endpoint) and self._node_at(peer) is None:
            return
        edge = self.edges.setdefault((source, peer), Edge(source, peer))
        edge.waiting.append(message)
        for key in keys_of(message):
            edge.unreleased[key] = edge.unreleased.get(key, 0) + 1
            self._credit_changed(edge, key)

    def _deliver(self, edge: Edge, index: int) -> None:
        message = edge.waiting.pop(index)
        held = set(keys_of(message))

        def release(key: RequestKey | None = None) -> None:
            returned = set(held) if key is None else held & {key}
            held.difference_update(returned)
            self._release(edge, returned)

        if isinstance(edge.peer, GatewayPeer):
            self.hear(message, self.nodes[edge.source].endpoint, release)
            return
        assert not isinstance(message, OutputFrame | Completed | Failed)
        self.happen(edge.peer.instance, Delivered(message, release))

    def _release(self, edge: Edge, keys: set[RequestKey]) -> None:
        for key in set(keys):
            if edge.unreleased.get(key):
                edge.unreleased[key] -= 1
                self._credit_changed(edge, key)

    def _credit_changed(self, edge: Edge, key: RequestKey) -> None:
        stalled = edge.unreleased.get(key, 0) > CREDIT_ROWS
        if stalled == (key in edge.stalled) or edge.source not in self.nodes:
            return
        (edge.stalled.add if stalled else edge.stalled.discard)(key)
        self.happen(edge.source, StallChanged(edge.peer, key, stalled))

    def _drop(self, source: str, peer: Peer, key: RequestKey, reason: str) -> None:
        """Abort at a peer; all that was posted still arrives, the worst a real edge can do."""
        if isinstance(peer, Endpoint):
            self._post(source, peer, Abort(key, reason))

    def _node_at(self, endpoint: Endpoint) -> Node | None:
        node = self.nodes.get(endpoint.instance)
        return node if node is not None and node.endpoint == endpoint else None

    def _failed(self, call: Call) -> None:
        assert call.error is not None
        self._broadcast_abort(call, call.error.message)

    def _broadcast_abort(self, call: Call, reason: str) -> None:
        bound = [it for it in call.bindings.values() if self._node_at(it) is not None]
        call.unacknowledged.update(bound)
        for endpoint in bound:
            self.happen(endpoint.instance, AbortAsked(call.key, reason))
