"""The stages of one process: their shells, the edges that lead to them, those that leave them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from omni_config.settings import CommConfig
from omni_runtime.outlet import GroupOutlet, MeasuredEdge
from omni_runtime.scheduler import Scheduler
from omni_runtime.stage import Stage
from omni_runtime.stage_wiring import StageWiring
from omni_wire.credentials import Credentials
from omni_wire.dialer import WrapStream
from omni_wire.edge import EdgeEvents, EdgeOptions
from omni_wire.grpc_edge import GrpcEdgeSender
from omni_wire.identity import Endpoint
from omni_wire.local_edge import LocalEdgeSender
from omni_wire.stage_server import StageServer

SHARED_MEMORY_DIRECTORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """What a process is to others.

    Attributes:
        address: gRPC target that they dial.
        incarnation: number drawn when it started.
        credentials: how it proves who it is.
    """

    address: str
    incarnation: int
    credentials: Credentials


class StageHost:
    """Stages on one event loop.

    Args:
        tasks: the task group in which edges and schedulers run.
        wrap: put between edges and their streams; tests inject faults with it.

    Attributes:
        stages: the shells by instance name.
        outlet: what they send through.
        server: the receiving end of edges from other processes.
    """

    def __init__(
        self, identity: HostIdentity, tasks: asyncio.TaskGroup, wrap: WrapStream | None = None
    ) -> None:
        self.identity = identity
        self.stages: dict[str, Stage] = {}
        self.outlet = GroupOutlet(self._connect, tasks)
        self.outlet.stages = self.stages
        self.server = StageServer(identity.incarnation)
        self._options: dict[str, EdgeOptions] = {}
        self._tasks = tasks
        self._wrap = wrap

    @property
    def endpoints(self) -> Mapping[str, Endpoint]:
        """Every hosted instance by name."""
        return {instance: self._endpoint(instance) for instance in self.stages}

    def add(self, wiring: StageWiring, scheduler: Scheduler, comm: CommConfig) -> Stage:
        """Host a stage and start its scheduler."""
        stage = Stage(wiring, scheduler, self.outlet)
        self.stages[wiring.instance] = stage
        self._options[wiring.instance] = edge_options(comm)
        self.server.host(wiring.instance, stage)
        self._tasks.create_task(stage.run(), name=f"scheduler of {wiring.instance}")
        return stage

    async def drain(self, seconds: float, unbound: asyncio.Event) -> None:
        """Accept no new request; return when every one has ended (`Stage.drain`)."""
        async with asyncio.TaskGroup() as draining:
            for stage in self.stages.values():
                draining.create_task(stage.drain(seconds, unbound))

    async def close(self) -> None:
        """Stop the schedulers and end every edge."""
        for stage in self.stages.values():
            stage.stop()
        await self.outlet.close()
        self.server.close()

    def _endpoint(self, instance: str) -> Endpoint:
        return Endpoint(instance, self.identity.address, self.identity.incarnation)

    def _connect(self, source: str, endpoint: Endpoint, events: EdgeEvents) -> MeasuredEdge:
        options = self._options[source]
        local = self.stages.get(endpoint.instance)
        if local is not None and endpoint.incarnation == self.identity.incarnation:
            return LocalEdgeSender(endpoint, local, events, options)
        return GrpcEdgeSender(
            self._endpoint(source),
            endpoint,
            self.identity.credentials,
            events,
            options,
            self._wrap,
        )


def edge_options(comm: CommConfig) -> EdgeOptions:
    """Return the limits of edges that leave a stage."""
    return EdgeOptions(
        part_bytes=comm.part_bytes,
        edge_credit_bytes=comm.edge_credit_bytes,
        request_credit_bytes=comm.request_credit_bytes,
        shared_directory=SHARED_MEMORY_DIRECTORY if comm.shared_memory else None,
    )
