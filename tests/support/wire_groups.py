"""Group processes that speak the control protocol over real gRPC and do what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from examples.two_level_stream.topology import TwoLevelStreamPipelineConfig
from omni_config.resolution.inspection import config_hash
from omni_gateway.coordinator import Coordinator, CoordinatorOptions
from omni_gateway.server import Addresses, GatewayServer
from omni_wire.control_link import GroupLink
from omni_wire.credentials import Plaintext
from omni_wire.dialer import WrapStream
from omni_wire.edge import DEFAULT_OPTIONS, EdgeOptions, Release
from omni_wire.errors import ErrorInfo, ServiceError
from omni_wire.identity import RequestKey, new_incarnation
from omni_wire.messages import (
    Abort,
    AbortAck,
    Completed,
    Draining,
    Failed,
    GatewayMessage,
    Hello,
    OutputFrame,
    Ready,
    Row,
    Stats,
    Submit,
    Tree,
    Welcome,
)
from omni_wire.tensor import NumpyArray, Tensor
from omni_wire.v1 import gateway_pb2_grpc as pb_grpc
from omni_wire.wire_version import WIRE_VERSION
from tests.support.fake_groups import STAGES
from tests.support.patience import PATIENT_SECONDS

HEARTBEAT_SECONDS = 0.1


@dataclass(eq=False)
class WireGroup:
    """One group process; `run` it in a task group.

    Attributes:
        gateway: address it dials.
        submits: requests that arrived at its entry stage.
        aborts: requests it was told to drop.
        confirms: whether it confirms aborts at once.
        beats: whether it says regularly that it is alive.
        lost: why the gateway is gone; null while it is not.
        stalled: requests whose output waits for credit.
    """

    gateway: str
    config_hash: str
    group: str
    revision: str = ""
    address: str = ""
    incarnation: int = field(default_factory=new_incarnation)
    instances: tuple[str, ...] = ()
    options: EdgeOptions = DEFAULT_OPTIONS
    wrap: WrapStream | None = None
    confirms: bool = True
    beats: bool = True
    submits: asyncio.Queue[Submit] = field(default_factory=asyncio.Queue)
    aborts: asyncio.Queue[Abort] = field(default_factory=asyncio.Queue)
    welcomed: asyncio.Event = field(default_factory=asyncio.Event)
    lost: asyncio.Future[ServiceError] = field(init=False)
    stalled: set[RequestKey] = field(default_factory=set)
    _chunks: dict[tuple[RequestKey, str], int] = field(default_factory=dict)
    _steps: int = 0

    def __post_init__(self) -> None:
        self.lost = asyncio.get_running_loop().create_future()
        base, mark, index = self.group.partition("@")
        if not self.instances:
            self.instances = tuple(f"{stage}{mark}{index}" for stage in STAGES[base])
        hello = Hello(
            WIRE_VERSION,
            self.config_hash,
            self.revision,
            self.group,
            self.incarnation,
            self.address or f"unix:/{self.incarnation}",
            self.instances,
        )
        self.link = GroupLink(hello, self.gateway, Plaintext(), self, self.options, self.wrap)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[WireGroup]:
        """Keep the link up and beat its heart; says goodbye at the end."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.link.run())
            beating = tasks.create_task(self._beat())
            try:
                async with asyncio.timeout(PATIENT_SECONDS):
                    await self.welcomed.wait()
                for instance in self.instances:
                    self.link.post(Ready(instance, True))
                yield self
            finally:
                beating.cancel()
                self.link.close()

    def output(
        self,
        keys: Sequence[RequestKey],
        stage: str,
        columns: Mapping[str, Sequence[int] | NumpyArray],
        modality: str = "text",
    ) -> None:
        """Send one frame with a row for each key."""
        rows = []
        for key in keys:
            chunk_id = self._chunks.get((key, stage), 0)
            self._chunks[key, stage] = chunk_id + 1
            rows.append(Row(key, chunk_id))
        self._steps += 1
        arrays = {
            name: Tensor.of_numpy(values if isinstance(values, np.ndarray) else np.array(values))
            for name, values in columns.items()
        }
        source = self.instance(stage)
        self.link.post(OutputFrame(source, self._steps, modality, tuple(rows), arrays))

    def complete(self, key: RequestKey, stage: str, result: Tree = None) -> None:
        """Complete a request."""
        self.link.post(Completed(key, self.instance(stage), result))

    def fail(self, key: RequestKey, stage: str, error: ErrorInfo) -> None:
        """Fail a request."""
        self.link.post(Failed(key, self.instance(stage), error))

    def drain(self) -> None:
        """Say that no new request is taken."""
        self.link.post(Draining())

    def confirm(self, key: RequestKey) -> None:
        """Say that nothing of an aborted request is left."""
        self.link.post(AbortAck(key))

    def instance(self, stage: str) -> str:
        """Return the name of the instance of a stage."""
        return next(one for one in self.instances if one.partition("@")[0] == stage)

    def on_welcome(self, welcome: Welcome) -> None:
        """Be accepted."""
        self.welcomed.set()

    def on_gateway_message(self, message: GatewayMessage, release: Release) -> None:
        """Take a message of the gateway."""
        release()
        if isinstance(message, Submit):
            self.submits.put_nowait(message)
        elif isinstance(message, Abort):
            self.aborts.put_nowait(message)
            if self.confirms:
                self.confirm(message.key)

    def on_stall(self, key: RequestKey, stalled: bool) -> None:
        """Note which requests wait for credit."""
        if stalled:
            self.stalled.add(key)
        else:
            self.stalled.discard(key)

    def on_gateway_lost(self, gateway: str, error: ServiceError) -> None:
        """Note that the gateway refused or is gone."""
        if not self.lost.done():
            self.lost.set_result(error)

    async def _beat(self) -> None:
        beats = 0
        while True:
            beats += 1
            for instance in self.instances if self.beats else ():
                self.link.post(Stats(instance, 0, 0, beats, 0.0))
            await asyncio.sleep(HEARTBEAT_SECONDS)


@dataclass(eq=False)
class WireCluster:
    """A gateway in this process, served over gRPC, and groups that dial it.

    Attributes:
        stub: the API as a client sees it.
    """

    server: GatewayServer
    channel: grpc.aio.Channel
    config_hash: str
    stack: AsyncExitStack

    @property
    def stub(self) -> pb_grpc.GatewayServiceAsyncStub:
        """The API as a client sees it."""
        return pb_grpc.GatewayServiceStub(self.channel)

    @property
    def coordinator(self) -> Coordinator:
        """What the gateway knows."""
        return self.server.coordinator

    async def group(self, name: str, **settings: Any) -> WireGroup:
        """Start a group and wait until the gateway knows that it is ready."""
        group = self.unstarted(name, **settings)
        await self.stack.enter_async_context(group.running())
        await self.until_ready(group)
        return group

    def unstarted(self, name: str, **settings: Any) -> WireGroup:
        """Return a group that has not dialled yet."""
        settings = {"config_hash": self.config_hash, **settings}
        return WireGroup(self.server.bound[0], group=name, **settings)

    async def until_ready(self, group: WireGroup) -> None:
        """Wait until requests may be bound to a group."""

        def routable() -> bool:
            replica = self.coordinator.state.directory.get(group.incarnation)
            return replica is not None and replica.routable

        await self.until(routable)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a change of readiness after which something is so."""
        changed = asyncio.Event()
        self.coordinator.watch_readiness(lambda _: changed.set())
        async with asyncio.timeout(PATIENT_SECONDS):
            while not condition():
                changed.clear()
                await changed.wait()

    async def settled(self) -> bool:
        """Drain, and return whether nothing of any request is left."""
        await self.coordinator.drain(PATIENT_SECONDS)
        state = self.coordinator.state
        loads = [replica.outstanding for replica in state.directory]
        return not (len(state.requests) or len(state.requests.backlog) or any(loads))


@asynccontextmanager
async def wire_cluster(options: CoordinatorOptions | None = None) -> AsyncIterator[WireCluster]:
    """Serve a gateway for the two-level stream; groups are the test's to start."""
    config = TwoLevelStreamPipelineConfig(model_path="none", name="numbers")
    server = GatewayServer(config, Addresses(("127.0.0.1:0",)), Plaintext(), options)
    async with server.serving(), AsyncExitStack() as stack:
        channel = grpc.aio.insecure_channel(server.bound[0])
        await stack.enter_async_context(channel)
        yield WireCluster(server, channel, config_hash(config), stack)
