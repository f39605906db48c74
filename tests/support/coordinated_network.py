"""The network of stages with a real Coordinator in front of it.

Words of the Coordinator to a process, and of a process to the Coordinator, wait like any other
message until a test delivers them. Clients read when a test lets them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from omni_config.schema import PipelineConfig
from omni_gateway.coordinator.directory import Registration
from omni_gateway.coordinator.events import (
    AbortAcked,
    AbortRequested,
    ConsumerLeft,
    Event,
    Finished,
    Instruction,
    OutputArrived,
    ReplicaLost,
    ReplicasChanged,
    ReturnCredit,
    SendAbort,
    SendSubmit,
    StageCompleted,
    StageFailed,
    SubmitSent,
    Submitted,
)
from omni_gateway.coordinator.frames import outputs_of
from omni_gateway.coordinator.options import CoordinatorOptions
from omni_gateway.coordinator.records import Phase, RequestRecord
from omni_gateway.coordinator.state import CoordinatorState
from omni_gateway.coordinator.topology import topology_of
from omni_runtime import stage_events
from omni_runtime.stage_events import Outgoing
from omni_wire.edge import Release
from omni_wire.errors import InstanceLost, RequestAborted
from omni_wire.identity import Endpoint, RequestKey, stage_of
from omni_wire.messages import Completed, Failed, OutputFrame, RequestView
from omni_wire.trees import to_numpy
from tests.support.stage_calls import GATEWAY
from tests.support.stage_network import Network


@dataclass(eq=False)
class Client:
    """A request as its client sees it.

    Attributes:
        rows: per terminal stage, the column `number` of every row, in order.
        record: what the Coordinator knows of it.
        ends: every end it came to; exactly one in the end.
    """

    record: RequestRecord
    rows: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    left: bool = False
    ends: list[Phase] = field(default_factory=list)


class CoordinatedNetwork(Network):
    """A pipeline, its processes known to a Coordinator by registration."""

    def __init__(self, pipeline: type[PipelineConfig]) -> None:
        self.clients: dict[str, Client] = {}
        self._control: dict[int, deque[SendSubmit | SendAbort]] = defaultdict(deque)
        self._unacknowledged: dict[tuple[int, RequestKey], set[str]] = {}
        settings: dict[str, Any] = {"model_path": "none"}
        config = pipeline(**settings)
        self.coordinator = CoordinatorState(topology_of(config), CoordinatorOptions(), GATEWAY)
        super().__init__(pipeline)

    def start(self, process: str) -> int:
        """Start a process, and register it."""
        incarnation = super().start(process)
        instances = tuple(self.members(process))
        registration = Registration(process, incarnation, f"unix:/{process}", instances)
        for replaced in self.coordinator.directory.register(registration, self.now):
            self._feed(ReplicaLost(replaced, "replaced"))
        for instance in instances:
            self.coordinator.directory.set_ready(incarnation, instance, reason=None)
        self._feed(ReplicasChanged())
        return incarnation

    def ask(self, request_id: str, **view: Any) -> Client:
        """A client asks for something."""
        self._feed(Submitted(request_id, RequestView(**view), self.now + 3600.0))
        record = self.coordinator.requests.get(request_id)
        assert record is not None
        client = self.clients[request_id] = Client(record)
        return client

    def leave(self, client: Client) -> None:
        """A client goes away in the middle."""
        if client.left:
            return
        client.left = True
        request_id = client.record.request_id
        self._feed(AbortRequested(request_id, RequestAborted("the client left")))
        self._feed(ConsumerLeft(request_id))

    def hear(self, message: Outgoing, source: Endpoint, release: Release) -> None:
        """The Coordinator takes a message of a stage."""
        sender = source.incarnation
        match message:
            case OutputFrame():
                for key, output in outputs_of(message, sender, release):
                    self._feed(OutputArrived(key, output))
                return
            case Completed(key, instance, result):
                self._feed(StageCompleted(key, sender, stage_of(instance), result, 0))
            case Failed(key, _, error):
                self._feed(StageFailed(key, sender, error))
        release()

    def let_go(self, endpoint: Endpoint, key: RequestKey) -> None:
        """A process acknowledges once all its instances have let go."""
        waiting = self._unacknowledged.get((endpoint.incarnation, key))
        if waiting is None:
            return
        waiting.discard(endpoint.instance)
        if not waiting:
            del self._unacknowledged[endpoint.incarnation, key]
            self._feed(AbortAcked(key, endpoint.incarnation))

    def process_lost(self, gone: Collection[Endpoint], error: InstanceLost) -> None:
        """The Coordinator hears that a process died."""
        for incarnation in {endpoint.incarnation for endpoint in gone}:
            self._control.pop(incarnation, None)
            self._feed(ReplicaLost(incarnation, error.message))
        dead = {endpoint.incarnation for endpoint in gone}
        for incarnation, key in list(self._unacknowledged):
            if incarnation in dead:
                del self._unacknowledged[incarnation, key]

    def assert_nothing_left(self) -> None:
        """Check that neither stages nor Coordinator hold anything of any request."""
        super().assert_nothing_left()
        for request_id, client in self.clients.items():
            if not client.left:
                self._feed(ConsumerLeft(request_id))
        assert len(self.coordinator.requests) == 0, "the Coordinator still holds requests"
        assert not self._unacknowledged
        assert not any(self._control.values())

    def _possible(self) -> Iterator[Callable[[], None]]:
        yield from super()._possible()
        for incarnation, waiting in self._control.items():
            if waiting:
                yield partial(self._control_moves, incarnation)
        for client in self.clients.values():
            if not client.left and client.record.buffer:
                yield partial(self._read, client)

    def _read(self, client: Client) -> None:
        output = self.coordinator.requests.take(client.record)
        rows = client.rows[output.stage]
        assert output.chunk_id == len(rows), f"chunk {output.chunk_id} came after {len(rows)}"
        rows.append(np.asarray(to_numpy(output.columns["number"])).tolist())
        output.release()

    def _control_moves(self, incarnation: int) -> None:
        message = self._control[incarnation].popleft()
        members = [
            name for name, node in self.nodes.items() if node.endpoint.incarnation == incarnation
        ]
        match message:
            case SendSubmit(_, payload):
                entry = payload.bindings[self.config.entry].instance
                started = stage_events.Submitted(payload, lambda key=None: None)
                self.happen(entry, started)
            case SendAbort(_, key, reason):
                self._unacknowledged[incarnation, key] = set(members)
                for name in members:
                    self.happen(name, stage_events.AbortAsked(key, reason))

    def _feed(self, event: Event) -> None:
        pending: deque[Instruction] = deque(self.coordinator.handle(event, self.now))
        while pending:
            match pending.popleft():
                case SendSubmit() as submit:
                    self._control[submit.incarnation].append(submit)
                    sent = SubmitSent(submit.payload.key)
                    pending.extend(self.coordinator.handle(sent, self.now))
                case SendAbort() as abort:
                    self._control[abort.incarnation].append(abort)
                case ReturnCredit(outputs):
                    for output in outputs:
                        output.release()
                case Finished(key, phase):
                    if key.request_id in self.clients:
                        self.clients[key.request_id].ends.append(phase)
