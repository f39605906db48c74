"""Groups know every gateway there is, as gateways come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from examples.echo.stages import make_answer, make_reverse, make_trim
from examples.echo.topology import EchoPipelineConfig
from omni_runtime import registration as module
from omni_runtime.group_stages import scheduler_of
from omni_runtime.registration import Registration
from omni_runtime.stage_host import HostIdentity, StageHost
from omni_runtime.stage_wiring import wire_stage
from omni_wire.control_link import SERVICE
from omni_wire.control_server import ControlServer
from omni_wire.credentials import Plaintext
from omni_wire.edge import EdgeOptions
from omni_wire.identity import new_gateway_id, new_incarnation
from omni_wire.messages import Hello
from omni_wire.server import WireServer
from omni_wire.wire_version import WIRE_VERSION
from tests.support.group_processes import SmallGateway

NAME = "dns:///gateways:1"
MAKERS: dict[str, Any] = {"trim": make_trim, "reverse": make_reverse, "answer": make_answer}


@dataclass
class World:
    """A name service, gateways, and one group that hosts the whole echo chain."""

    directory: Path
    stack: AsyncExitStack
    registration: Registration = field(init=False)
    listed: frozenset[str] = frozenset()

    async def gateway(self, name: str) -> SmallGateway:
        """Start a gateway and list it under the name."""
        config = EchoPipelineConfig(model_path="none", name="echo")
        gateway = SmallGateway(config, new_gateway_id())
        control = ControlServer(gateway.gateway, gateway, EdgeOptions(reconnect_seconds=1.0))
        server = WireServer([SERVICE], [control.handler()])
        address = f"unix:{self.directory}/{name}.sock"
        server.listen(address, Plaintext())
        await self.stack.enter_async_context(server)
        self.stack.callback(control.close)
        self.listed |= {address}
        return gateway

    async def resolve(self, target: str) -> frozenset[str]:
        """Answer as a name service."""
        assert target == NAME
        if not self.listed:
            raise OSError("no such name")
        return self.listed


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(module, "REDIAL_SECONDS", 0.02)
    monkeypatch.setattr(module, "RESOLVE_SECONDS", 0.02)
    with TemporaryDirectory(prefix="omni") as directory:
        async with AsyncExitStack() as stack:
            made = World(Path(directory), stack)
            monkeypatch.setattr(module, "addresses_of", made.resolve)
            yield made


@asynccontextmanager
async def group(world: World) -> AsyncIterator[None]:
    """Run the group until the end of the block."""
    config = EchoPipelineConfig(model_path="none", name="echo")
    async with asyncio.TaskGroup() as tasks:
        identity = HostIdentity(
            f"unix:{world.directory}/group.sock", new_incarnation(), Plaintext()
        )
        host = StageHost(identity, tasks)
        for stage in config.stages:
            scheduler = scheduler_of(MAKERS[stage.name]())
            host.add(wire_stage(stage, stage.name), scheduler, stage.comm)
        instances = tuple(host.stages)
        hello = Hello(
            WIRE_VERSION, "hash", "", "all", identity.incarnation, identity.address, instances
        )
        world.registration = Registration(hello, host, lambda seconds: None)
        tasks.create_task(world.registration.run([NAME]))
        yield
        world.registration.close()
        await host.close()


async def test_a_gateway_that_comes_later_is_found_and_served(world: World) -> None:
    async with group(world):
        first = await world.gateway("first")
        await first.ready("all")
        await world.registration.wait_registered()
        second = await world.gateway("second")
        await second.ready("all")
        calls = [each.submit("r", inputs={"text": "ab"}) for each in (first, second)]
        for gateway, call in zip((first, second), calls, strict=True):
            await gateway.end(call)
            assert call.results["answer"] == {"text": "ba", "length": 2}


async def test_a_group_that_drains_hears_from_every_gateway(world: World) -> None:
    async with group(world):
        gateways = [await world.gateway(name) for name in ("first", "second")]
        for gateway in gateways:
            await gateway.ready("all")
        world.registration.start_draining()
        await world.registration.unbound.wait()
        assert all(gateway.groups["all"].draining for gateway in gateways)


async def test_a_drain_that_is_called_off_lets_requests_in_again(world: World) -> None:
    async with group(world):
        gateway = await world.gateway("first")
        await gateway.ready("all")
        world.registration.start_draining()
        await world.registration.unbound.wait()
        late = await world.gateway("second")
        await late.until(lambda: "all" in late.groups and late.groups["all"].draining)

        world.registration.stop_draining()
        for each in (gateway, late):
            await each.ready("all")
            call = each.submit("r", inputs={"text": "ab"})
            await each.end(call)
            assert call.results["answer"] == {"text": "ba", "length": 2}
