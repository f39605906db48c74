"""A pipeline over real edges, in one event loop: every process is a task with a host of its own.

The gateway is played here, because the scenarios are about stages: it submits, hears what the
stages say and aborts everywhere when one of them fails a request. The same pipeline runs with all
stages in one process, over gRPC, or over gRPC with shared memory, and with streams that break at
random.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from omni_config.planning.instances import StageInstance, expand_replicas
from omni_config.schema import PipelineConfig
from omni_runtime.group_stages import scheduler_of
from omni_runtime.stage_events import GatewayPeer
from omni_runtime.stage_host import HostIdentity, StageHost
from omni_runtime.stage_wiring import load_hook, wire_stage
from omni_wire.credentials import Plaintext
from omni_wire.errors import InstanceLost
from omni_wire.identity import new_incarnation
from omni_wire.messages import AbortAck, GroupMessage, RequestView
from omni_wire.server import WireServer
from omni_wire.streams import ByteStream, StreamBroken
from tests.support.patience import PATIENT_SECONDS
from tests.support.stage_calls import GATEWAY, Call, CallBook

Transport = Literal["local", "grpc", "shm"]
TRANSPORTS: tuple[Transport, ...] = ("local", "grpc", "shm")


class FragileStream:
    """A stream that breaks after a number of messages, again and again."""

    def __init__(self, stream: ByteStream, cuts: random.Random | None) -> None:
        self._stream = stream
        self._left = cuts.randint(1, 12) if cuts is not None else None

    async def read(self) -> bytes | None:
        """Read, or break."""
        return await self._stream.read()

    async def write(self, data: bytes) -> None:
        """Write, or break before or after the message has left."""
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                raise StreamBroken("cut before the message")
        await self._stream.write(data)


@dataclass
class Process:
    """One process while it lives."""

    name: str
    host: StageHost
    server: WireServer
    task: asyncio.Task[None]


@dataclass(frozen=True)
class Link:
    """The played gateway's side of one process."""

    cluster: Cluster
    process: str

    def post(self, message: GroupMessage) -> None:
        """Take what a process says."""
        self.cluster.heard(self.process, message)


class Cluster:
    """The processes of one pipeline.

    Args:
        pipeline: a pipeline class.
        transport: what lies between its stages.
        directory: where sockets are made.
        cuts: decides where streams break; None never breaks any.
        arguments: keyword arguments of stage factories by stage.

    Attributes:
        comm: limits of the edges that leave a stage, as in `CommConfig`.
    """

    def __init__(
        self,
        pipeline: type[PipelineConfig],
        transport: Transport,
        directory: Path,
        cuts: random.Random | None = None,
        arguments: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        body: dict[str, Any] = {"model_path": "none"}
        self.config = pipeline(**body)
        self.processes: dict[str, Process] = {}
        self.comm: dict[str, Any] = {"shared_memory": transport == "shm"}
        self.turn = 0
        self._transport = transport
        self._directory = directory
        self._cuts = cuts
        self._arguments = arguments or {}
        self._topology = expand_replicas(self.config)
        self._book = CallBook(self.config, self._failed)
        self._changed = asyncio.Event()

    @property
    def calls(self) -> Iterable[Call]:
        """Every request so far."""
        return self._book.calls.values()

    async def start(self, process: str) -> None:
        """Start a process, with a new incarnation."""
        started: asyncio.Future[Process] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._live(process, started), name=process)
        self.processes[process] = await started
        self.processes[process].task = task

    async def kill(self, process: str) -> None:
        """End a process without a word; its bound requests fail, as a gateway would fail them."""
        gone = self.processes.pop(process)
        gone.task.cancel()
        await asyncio.wait((gone.task,))
        lost = set(gone.host.endpoints.values())
        for call in list(self.calls):
            call.unacknowledged -= lost
            if not call.ended and lost & set(call.bindings.values()):
                self._book.fail(call, InstanceLost(f"{process} was killed").info)

    def submit(self, request_id: str, **view: Any) -> Call:
        """Send a request to the entry stage, bound to the replicas whose turn it is."""
        self.turn += 1
        endpoints = {
            instance: endpoint
            for process in self.processes.values()
            for instance, endpoint in process.host.endpoints.items()
        }
        bindings = {}
        for stage in self.config.stages:
            copies = self._topology.instances_of(stage.name)
            alive = [endpoints[name] for name in copies if name in endpoints]
            bindings[stage.name] = alive[self.turn % len(alive)]
        call = self._book.open(request_id, bindings, RequestView(**view))
        entry = bindings[self.config.entry].instance
        host = next(p.host for p in self.processes.values() if entry in p.host.stages)
        host.stages[entry].submit(call.payload, lambda key=None: None)
        return call

    def abort(self, call: Call) -> None:
        """The client of a request leaves."""
        if not call.ended:
            call.aborted = True
        self._abort_everywhere(call, "the client left")

    def stall(self, call: Call, stalled: bool) -> None:
        """The client of a request stops reading, or reads on."""
        for process in self.processes.values():
            for stage in process.host.stages.values():
                if stage.wiring.routes.terminal:
                    stage.on_stall(GatewayPeer(GATEWAY), call.key, stalled)

    async def until(self, condition: Any, what: str = "condition") -> None:
        """Wait until a condition holds that only a message to the gateway can change."""
        try:
            async with asyncio.timeout(PATIENT_SECONDS):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{what} never came about") from None

    async def end(self, *calls: Call) -> None:
        """Wait until these requests have ended."""
        for call in calls:
            await self.until(lambda call=call: call.ended, f"the end of {call.key}")

    async def empty(self) -> None:
        """Wait until no stage, scheduler or edge holds anything of any request."""
        async with asyncio.timeout(PATIENT_SECONDS):
            # Credits come home without a word to anybody, so this has to look.
            while left := self.leftovers():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert not left

    def leftovers(self) -> list[str]:
        """Return everything that is still held, for people."""
        left = [f"{call.key} unacknowledged" for call in self.calls if call.unacknowledged]
        for process in self.processes.values():
            for name, stage in process.host.stages.items():
                scheduler: Any = stage.scheduler
                if stage.in_flight or scheduler.in_flight or len(scheduler.inbox):
                    left.append(f"{name}: {stage.in_flight} and {scheduler.in_flight} requests")
            for (source, endpoint), edge in process.host.outlet.edges.items():
                if edge.unreleased_bytes:
                    left.append(f"{source} -> {endpoint.instance}: {edge.unreleased_bytes} bytes")
        return left

    @property
    def edge_bytes(self) -> int:
        """Bytes that all edges hold, under way or waiting for credit."""
        return sum(
            edge.unreleased_bytes + edge.held_bytes
            for process in self.processes.values()
            for edge in process.host.outlet.edges.values()
        )

    def heard(self, process: str, message: GroupMessage) -> None:
        """A process said something."""
        if process not in self.processes:
            return
        if isinstance(message, AbortAck):
            let_go = set(self.processes[process].host.endpoints.values())
            self._book.calls[message.key].unacknowledged -= let_go
        else:
            self._book.receive(message)
        self._changed.set()

    async def close(self) -> None:
        """End every process."""
        for process in list(self.processes.values()):
            process.task.cancel()
        await asyncio.gather(
            *(process.task for process in self.processes.values()), return_exceptions=True
        )

    def process_names(self) -> list[str]:
        """Return the processes of the pipeline; all stages share one over local edges."""
        if self._transport == "local":
            return ["all"]
        return list(dict.fromkeys(instance.process for instance in self._topology.instances))

    async def _live(self, name: str, started: asyncio.Future[Process]) -> None:
        address = f"unix:{self._directory}/{name}.sock"
        async with asyncio.TaskGroup() as tasks:
            identity = HostIdentity(address, new_incarnation(), Plaintext())
            host = StageHost(identity, tasks, wrap=lambda it: FragileStream(it, self._cuts))
            host.outlet.gateways[GATEWAY] = Link(self, name)
            for instance in self._members(name):
                self._add(host, instance)
            server = WireServer(["omni.v1.StageService"], [host.server.handler()])
            server.listen(address, Plaintext())
            async with server:
                started.set_result(Process(name, host, server, asyncio.current_task()))  # type: ignore[arg-type]
                await asyncio.get_running_loop().create_future()

    def _add(self, host: StageHost, instance: StageInstance) -> None:
        config = instance.config
        made = load_hook(config.factory_path)(**self._arguments.get(config.name, {}))
        comm = config.comm.model_copy(update=self.comm)
        host.add(wire_stage(config, instance.name), scheduler_of(made), comm)

    def _members(self, process: str) -> list[StageInstance]:
        everything = list(self._topology.instances)
        if self._transport == "local":
            return everything
        return [instance for instance in everything if instance.process == process]

    def _failed(self, call: Call) -> None:
        assert call.error is not None
        self._abort_everywhere(call, call.error.message)

    def _abort_everywhere(self, call: Call, reason: str) -> None:
        for process in list(self.processes.values()):
            bound = set(call.bindings.values()) & set(process.host.endpoints.values())
            if not bound:
                continue
            call.unacknowledged |= bound
            process.host.outlet.expect_acknowledgements(call.key)
            for stage in list(process.host.stages.values()):
                stage.abort(call.key, reason)


@asynccontextmanager
async def running(
    pipeline: type[PipelineConfig],
    transport: Transport,
    directory: Path,
    cuts: random.Random | None = None,
    comm: Mapping[str, Any] | None = None,
    **arguments: Mapping[str, Any],
) -> AsyncIterator[Cluster]:
    """Run a pipeline; `arguments` are those of stage factories, by stage."""
    cluster = Cluster(pipeline, transport, directory, cuts, arguments)
    cluster.comm |= comm or {}
    try:
        for name in cluster.process_names():
            await cluster.start(name)
        yield cluster
    finally:
        await cluster.close()
