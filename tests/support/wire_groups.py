"""Group processes that speak the control protocol over real gRPC and do what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np

from omni_wire.control_link import GroupLink
from omni_wire.credentials import Plaintext
from omni_wire.dialer import WrapStream
from omni_wire.edge import Release
from omni_wire.errors import ErrorInfo, ServiceError
from omni_wire.identity import RequestKey, new_incarnation
from omni_wire.messages import (
    Abort,
    AbortAck,
    Completed,
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
from omni_wire.tensor import Tensor
from omni_wire.wire_version import WIRE_VERSION
from tests.support.fake_groups import STAGES

HEARTBEAT_SECONDS = 0.5


@dataclass(eq=False)
class WireGroup:
    """One group process; `run` it in a task group.

    Attributes:
        gateway: address it dials.
        submits: requests that arrived at its entry stage.
        aborts: requests it was told to drop; it confirms at once.
        lost: why the gateway is gone; null while it is not.
        stalled: requests whose output waits for credit.
    """

    gateway: str
    config_hash: str
    group: str
    revision: str = ""
    address: str = ""
    incarnation: int = field(default_factory=new_incarnation)
    wrap: WrapStream | None = None
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
        self.link = GroupLink(hello, self.gateway, Plaintext(), self, wrap=self.wrap)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[WireGroup]:
        """Keep the link up and beat its heart; says goodbye at the end."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.link.run())
            beating = tasks.create_task(self._beat())
            try:
                async with asyncio.timeout(10):
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
        columns: Mapping[str, Sequence[int] | np.ndarray[tuple[int, ...], np.dtype[np.int64]]],
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
            name: Tensor.of_numpy(np.asarray(values, np.int64)) for name, values in columns.items()
        }
        source = self.instance(stage)
        self.link.post(OutputFrame(source, self._steps, modality, tuple(rows), arrays))

    def complete(self, key: RequestKey, stage: str, result: Tree = None) -> None:
        """Complete a request."""
        self.link.post(Completed(key, self.instance(stage), result))

    def fail(self, key: RequestKey, stage: str, error: ErrorInfo) -> None:
        """Fail a request."""
        self.link.post(Failed(key, self.instance(stage), error))

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
            self.link.post(AbortAck(message.key))

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
            for instance in self.instances:
                self.link.post(Stats(instance, 0, 0, beats, 0.0))
            await asyncio.sleep(HEARTBEAT_SECONDS)
