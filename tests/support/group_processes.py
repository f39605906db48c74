"""Group processes as a launcher starts them, and a gateway that notes everything they say."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from omni_config.planning.plan import PipelineRuntime, prepare_pipeline_runtime
from omni_config.resolution.document import read_document
from omni_config.resolution.resolve import Sources, file_body, pipeline_of, resolve
from omni_config.schema import PipelineConfig
from omni_models.catalog import registry
from omni_wire.control_link import SERVICE
from omni_wire.control_server import ControlServer, GroupConnection
from omni_wire.credentials import Plaintext
from omni_wire.edge import EdgeOptions, Release
from omni_wire.errors import InstanceLost, ServiceError
from omni_wire.identity import Endpoint, RequestKey
from omni_wire.messages import (
    Abort,
    AbortAck,
    Drain,
    Draining,
    GroupMessage,
    Hello,
    Ready,
    RequestView,
    Stats,
    Submit,
)
from omni_wire.server import WireServer
from tests.support.stage_calls import GATEWAY, Call, CallBook

START_SECONDS = 100
LEASE_SECONDS = 1.5


@dataclass
class Group:
    """One registered group."""

    connection: GroupConnection
    ready: set[str] = field(default_factory=set)
    draining: bool = False
    told: bool = False
    stats: dict[str, Stats] = field(default_factory=dict)

    @property
    def hello(self) -> Hello:
        """What it said of itself."""
        return self.connection.hello


class SmallGateway:
    """Implements `omni_wire.control_server.GroupRegistry`."""

    def __init__(self, config: PipelineConfig, gateway: str = GATEWAY) -> None:
        self.config = config
        self.gateway = gateway
        self.groups: dict[str, Group] = {}
        self.lost: dict[str, ServiceError] = {}
        self._book = CallBook(config, self._failed, gateway)
        self._changed = asyncio.Event()

    def check(self, hello: Hello) -> None:
        """Accept everybody."""

    def on_group(self, group: GroupConnection) -> None:
        """A group registered."""
        self.groups[group.hello.group] = Group(group)

    def on_group_cut(self, group: GroupConnection, cut: bool) -> None:
        """A broken stream alone loses nothing."""

    def on_group_message(
        self, group: GroupConnection, message: GroupMessage, release: Release
    ) -> None:
        """Note what a group says."""
        known = self.groups[group.hello.group]
        match message:
            case Ready(instance, True):
                known.ready.add(instance)
            case Ready(instance, False):
                known.ready.discard(instance)
            case Draining():
                known.draining = True
                self._let_go(known)
            case Stats(instance):
                known.stats[instance] = message
            case AbortAck(key):
                self._book.calls[key].unacknowledged -= set(group.hello.endpoints())
            case Abort():
                pass
            case _:
                self._book.receive(message)
        release()
        self._changed.set()
        for each in self.groups.values():
            self._let_go(each)

    def _let_go(self, group: Group) -> None:
        """Tell a draining group once nothing is bound to it any more."""
        endpoints = set(group.hello.endpoints())
        calls = self._book.calls.values()
        bound = any(not it.ended and endpoints & set(it.bindings.values()) for it in calls)
        if group.draining and not group.told and not bound:
            group.told = True
            group.connection.post(Drain(0.0))

    def on_group_stall(self, group: GroupConnection, key: RequestKey, stalled: bool) -> None:
        """Nothing is held back here."""

    def on_group_lost(self, group: GroupConnection, error: ServiceError) -> None:
        """Fail what was bound to a group."""
        name = group.hello.group
        self.lost[name] = error
        if self.groups.get(name, None) and self.groups[name].connection is group:
            del self.groups[name]
        gone = set(group.hello.endpoints())
        for call in list(self._book.calls.values()):
            call.unacknowledged -= gone
            if not call.ended and gone & set(call.bindings.values()):
                self._book.fail(call, InstanceLost(f"{name} is gone").info)
        self._changed.set()

    def submit(self, request_id: str, deadline: float | None = None, **view: Any) -> Call:
        """Send a request to the entry stage, bound to what is registered."""
        endpoints: dict[str, Endpoint] = {}
        for group in self.groups.values():
            for endpoint in group.hello.endpoints():
                endpoints.setdefault(endpoint.instance.partition("@")[0], endpoint)
        call = self._book.open(request_id, endpoints, RequestView(**view))
        entry = endpoints[self.config.entry]
        payload = call.payload_until(deadline)
        self._connection_of(entry).post(Submit(entry.instance, payload))
        return call

    async def abort(self, call: Call, reason: str = "the client left") -> None:
        """Abort a request at every group it is bound to."""
        if not call.ended:
            call.aborted = True
        self._tell(call, reason)
        await self.until(lambda: not call.unacknowledged, "the acknowledgement of an abort")

    def in_flight(self, instance: str) -> int:
        """Return how many requests an instance said it holds, 0 before it said anything."""
        stats = (group.stats.get(instance) for group in self.groups.values())
        return sum(each.in_flight for each in stats if each is not None)

    async def until(self, condition: Any, what: str = "condition") -> None:
        """Wait until a condition holds that only a message to the gateway can change."""
        try:
            async with asyncio.timeout(START_SECONDS):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{what} never came about") from None

    async def end(self, *calls: Call) -> None:
        """Wait until these requests have ended."""
        for call in calls:
            await self.until(lambda call=call: call.ended, f"the end of {call.key}")

    async def ready(self, *groups: str) -> None:
        """Wait until every instance of these groups is ready."""
        await self.until(
            lambda: all(
                name in self.groups
                and self.groups[name].ready == set(self.groups[name].hello.instances)
                for name in groups
            ),
            f"readiness of {', '.join(groups)}",
        )

    def _failed(self, call: Call) -> None:
        assert call.error is not None
        self._tell(call, call.error.message)

    def _tell(self, call: Call, reason: str) -> None:
        for group in self.groups.values():
            bound = set(call.bindings.values()) & set(group.hello.endpoints())
            if bound:
                call.unacknowledged |= bound
                group.connection.post(Abort(call.key, reason))

    def _connection_of(self, endpoint: Endpoint) -> GroupConnection:
        return next(
            group.connection
            for group in self.groups.values()
            if endpoint in group.hello.endpoints()
        )


@dataclass
class Deployment:
    """A planned pipeline, its gateway, and the processes started so far."""

    config: Path
    topology: str
    runtime: PipelineRuntime
    gateway: SmallGateway
    directory: Path
    processes: dict[str, Process] = field(default_factory=dict)

    async def start(self, *groups: str, extra: Sequence[str] = ()) -> None:
        """Start processes and wait until they are ready; ranks other than 0 say nothing."""
        for name in groups:
            self.processes[name] = await self.spawn(name, extra)
        leading = [name for name in groups if not name.endswith("_tp1")]
        await self.gateway.ready(*(name.removesuffix("_tp0") for name in leading))

    async def spawn(self, group: str, extra: Sequence[str] = ()) -> Process:
        """Start one process and do not wait."""
        return await asyncio.create_subprocess_exec(*self.command(group), *extra)

    def command(self, group: str) -> list[str]:
        """Return the command that runs a group."""
        return [
            sys.executable,
            "-m",
            "omni_runtime.group",
            f"--config={self.config}",
            f"--pipelines={self.topology}",
            f"--group={group}",
            f"--run-id={self.runtime.endpoints.run_id}",
            f"--listen={self.runtime.endpoints.addresses[group]}",
            f"--gateway=unix:{self.directory}/gateway.sock",
            "--log-level=WARNING",
        ]

    async def stop(self, group: str) -> int:
        """Ask a process to stop and return its exit status."""
        process = self.processes[group]
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(START_SECONDS):
            return await process.wait()

    def rss_bytes(self, group: str) -> int:
        """Return the resident memory of a process now."""
        pages = int(Path(f"/proc/{self.processes[group].pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@asynccontextmanager
async def deployment(example: str, settings: str = "") -> AsyncIterator[Deployment]:
    """Plan an example and run its gateway; processes left at the end are killed.

    Args:
        settings: YAML appended to the example's file.
    """
    topology = f"examples.{example}.topology"
    with TemporaryDirectory(prefix="omni") as directory:
        config, runtime = _planned(Path("examples", example), Path(directory), topology, settings)
        gateway = SmallGateway(runtime.config)
        control = ControlServer(GATEWAY, gateway, EdgeOptions(reconnect_seconds=LEASE_SECONDS))
        server = WireServer([SERVICE], [control.handler()])
        server.listen(f"unix:{directory}/gateway.sock", Plaintext())
        made = Deployment(config, topology, runtime, gateway, Path(directory))
        async with server:
            try:
                yield made
            finally:
                await _killed(made.processes.values())
                control.close()


async def _killed(processes: Iterable[Process]) -> None:
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _planned(
    example: Path, directory: Path, topology: str, settings: str
) -> tuple[Path, PipelineRuntime]:
    """Plan an example with its sockets in a directory whose name is short enough for them."""
    config = directory / "pipeline.yaml"
    text = (example / "pipeline.yaml").read_text()
    config.write_text(f"{text}\nendpoints:\n  base_path: {directory}\n{settings}\n")
    body = file_body(read_document(config))
    pipeline = pipeline_of(body, registry((topology,)))
    resolved = resolve(pipeline, Sources(body=body)).config
    runtime = prepare_pipeline_runtime(resolved, run_id="t")
    Path(runtime.endpoints.run_directory).mkdir(parents=True)
    return config, runtime
