"""Group processes that do only what a test says, attached to a Coordinator inside the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import grpc
import numpy as np

from examples.two_level_stream.topology import TwoLevelStreamPipelineConfig
from omni_config.resolution.inspection import config_hash
from omni_gateway.coordinator import (
    Coordinator,
    CoordinatorOptions,
    Registration,
    ReplicaGate,
    topology_of,
)
from omni_gateway.generate_service import GenerateService
from omni_gateway.interceptors import DecodeInterceptor
from omni_gateway.pipeline_view import PipelineView
from omni_wire.errors import ErrorInfo, ServiceError
from omni_wire.identity import RequestKey, new_incarnation
from omni_wire.messages import (
    Abort,
    AbortAck,
    Completed,
    Drain,
    Draining,
    Failed,
    GatewayMessage,
    OutputFrame,
    Ready,
    RequestView,
    Row,
    Submit,
    Tree,
)
from omni_wire.tensor import Tensor
from omni_wire.v1 import gateway_pb2_grpc as pb_grpc
from tests.support.patience import PATIENT_SECONDS

STAGES = {"writer": ("writer",), "text": ("text",), "speaker": ("speaker", "sound")}
"""Groups of the two-level stream example; text and sound are its terminals."""


@dataclass(eq=False)
class FakeGroup:
    """One group process.

    Attributes:
        acknowledges: whether it confirms aborts at once.
        refuses: raised instead of taking a submission.
        unreleased: chunks sent whose credit has not come back.
        let_go: how often it was told that nothing is bound to it.
    """

    gate: ReplicaGate
    group: str
    revision: str = ""
    acknowledges: bool = True
    refuses: ServiceError | None = None
    incarnation: int = field(default_factory=new_incarnation)
    submits: asyncio.Queue[Submit] = field(default_factory=asyncio.Queue)
    aborts: list[Abort] = field(default_factory=list)
    closed: bool = False
    unreleased: int = 0
    let_go: int = 0
    _chunks: dict[tuple[RequestKey, str], int] = field(default_factory=dict)

    def start(self, *, ready: bool = True) -> FakeGroup:
        """Register, and become ready unless told otherwise."""
        registration = Registration(
            self.group, self.incarnation, f"unix:/{self.incarnation}", self.instances, self.revision
        )
        self.gate.register(registration, self)
        if ready:
            self.ready()
        return self

    @property
    def instances(self) -> tuple[str, ...]:
        """Names of its stage instances."""
        base, mark, index = self.group.partition("@")
        return tuple(f"{stage}{mark}{index}" for stage in STAGES[base])

    def ready(self) -> None:
        """Say that every instance is ready."""
        for instance in self.instances:
            self._say(Ready(instance, True))

    def drain(self) -> None:
        """Say that no new request is taken."""
        self._say(Draining())

    def post(self, message: GatewayMessage) -> None:
        """Take a message of the gateway."""
        if isinstance(message, Submit):
            if self.refuses is not None:
                raise self.refuses
            self.submits.put_nowait(message)
        elif isinstance(message, Abort):
            self.aborts.append(message)
            if self.acknowledges:
                self._say(AbortAck(message.key))
        elif isinstance(message, Drain):
            self.let_go += 1

    def close(self) -> None:
        """Be given up by the gateway."""
        self.closed = True

    def output(
        self, keys: Sequence[RequestKey], stage: str, values: Sequence[int], modality: str = "text"
    ) -> None:
        """Send one frame with a row for each key."""
        rows = []
        for key in keys:
            chunk_id = self._chunks.get((key, stage), 0)
            self._chunks[key, stage] = chunk_id + 1
            rows.append(Row(key, chunk_id))
        column = Tensor.of_numpy(np.array(values, np.int64))
        frame = OutputFrame(self._instance(stage), 0, modality, tuple(rows), {"number": column})
        left = set(keys)
        self.unreleased += len(left)

        def release(key: RequestKey | None = None) -> None:
            gone = set(left) if key is None else left & {key}
            left.difference_update(gone)
            self.unreleased -= len(gone)

        self.gate.deliver(self.incarnation, frame, release)

    def complete(self, key: RequestKey, stage: str, result: Tree = None) -> None:
        """Complete a request."""
        self._say(Completed(key, self._instance(stage), result))

    def fail(self, key: RequestKey, stage: str, error: ErrorInfo) -> None:
        """Fail a request."""
        self._say(Failed(key, self._instance(stage), error))

    def die(self) -> None:
        """Be gone."""
        self.gate.lost(self.incarnation, "killed by the test")

    def _instance(self, stage: str) -> str:
        return next(one for one in self.instances if one.partition("@")[0] == stage)

    def _say(self, message: Completed | Failed | AbortAck | Draining | Ready) -> None:
        self.gate.deliver(self.incarnation, message, _ignore)


@dataclass(eq=False)
class FakePipeline:
    """A Coordinator with one fake replica of each group of the two-level stream.

    Attributes:
        warm_ups: requests that its author declared.
    """

    options: CoordinatorOptions = field(default_factory=CoordinatorOptions)
    warm_ups: Mapping[str, RequestView] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.config = TwoLevelStreamPipelineConfig(model_path="none", name="numbers")
        topology = replace(topology_of(self.config), warm_ups=self.warm_ups)
        self.coordinator = Coordinator(topology, self.options)
        self.gate = ReplicaGate(self.coordinator)
        self.view = PipelineView(self.config, config_hash(self.config))
        self.writer = self.group("writer").start()
        self.text = self.group("text").start()
        self.speaker = self.group("speaker").start()
        self.port = 0

    def group(self, name: str, revision: str = "") -> FakeGroup:
        """Return one more replica, not started."""
        return FakeGroup(self.gate, name, revision)

    async def submitted(self) -> RequestKey:
        """Wait until the entry stage has the next request; returns its key."""
        async with asyncio.timeout(PATIENT_SECONDS):
            return (await self.writer.submits.get()).payload.key

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[pb_grpc.GatewayServiceAsyncStub]:
        """Serve the gRPC API; yields a stub for it."""
        server = grpc.aio.server(interceptors=[DecodeInterceptor()])
        pb_grpc.add_GatewayServiceServicer_to_server(
            GenerateService(self.coordinator, self.view), server
        )
        self.port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with self.channel() as channel:
                yield pb_grpc.GatewayServiceStub(channel)
        finally:
            await server.stop(grace=None)

    def channel(self) -> grpc.aio.Channel:
        """Return one more connection to what `serve` serves."""
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.port}")

    async def settled(self) -> bool:
        """Drain, and return whether nothing of any request is left."""
        await self.coordinator.drain(PATIENT_SECONDS)
        return self.clean()

    def clean(self) -> bool:
        """Whether nothing of any request is left."""
        state = self.coordinator.state
        return (
            len(state.requests) == 0
            and state.requests.admission.in_flight == 0
            and len(state.requests.backlog) == 0
            and all(replica.outstanding == 0 for replica in state.directory)
        )


def _ignore(key: RequestKey | None = None) -> None:
    """Take back credit that nobody counts."""
