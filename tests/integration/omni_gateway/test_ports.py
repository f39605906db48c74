"""What each port of a gateway serves, and who may register at it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from examples.two_level_stream.topology import TwoLevelStreamPipelineConfig
from omni_config.resolution.inspection import config_hash
from omni_gateway.server import Addresses, GatewayServer
from omni_wire.credentials import Plaintext
from omni_wire.errors import ConfigMismatch
from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.v1 import gateway_pb2_grpc as pb_grpc
from tests.support.patience import PATIENT_SECONDS
from tests.support.ports import free_port
from tests.support.wire_groups import WireGroup

CONFIG = TwoLevelStreamPipelineConfig(model_path="none", name="numbers")
HASH = config_hash(CONFIG)
ROUTES = """{"revisions": [
    {"name": "a", "groups": {"writer": "1", "text": "1", "speaker": "1"}},
    {"name": "b", "groups": {"writer": "1", "text": "2", "speaker": "1"}}
]}"""


@asynccontextmanager
async def serving(tmp_path: Path, **addresses: Any) -> AsyncIterator[tuple[GatewayServer, str]]:
    """A gateway with a control address of its own, which is the second value."""
    control = f"unix:{tmp_path}/control.sock"
    routes = tmp_path / "routes.json"
    routes.write_text(ROUTES)
    where = Addresses(("127.0.0.1:0",), (control,), **addresses)
    server = GatewayServer(CONFIG, where, Plaintext(), routes=routes, drain_seconds=5.0)
    async with server.serving():
        yield server, control


async def test_groups_register_at_the_control_address_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, control):
        elsewhere = WireGroup(server.bound[0], HASH, "text")
        await elsewhere.link.run()
        assert elsewhere.lost.done()

        async with WireGroup(control, HASH, "text", revision="1").running() as group:
            assert group.welcomed.is_set()


async def test_the_control_address_tells_what_runs_and_generates_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, control), grpc.aio.insecure_channel(control) as channel:
        stub = pb_grpc.GatewayServiceStub(channel)
        assert (await stub.GetPipeline(pb.GetPipelineRequest())).name == "numbers"
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.Generate(pb.GenerateRequest())
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_pods_of_a_routed_revision_may_run_another_configuration(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, control):
        async with WireGroup(control, "f" * 16, "text", revision="2").running() as group:
            assert group.welcomed.is_set()
        stranger = WireGroup(control, "f" * 16, "text", revision="3")
        await stranger.link.run()
        assert isinstance(await stranger.lost, ConfigMismatch)


async def test_probes_say_which_stage_is_missing_and_drain(tmp_path: Path) -> None:
    port = free_port()
    async with serving(tmp_path, health_port=port) as (server, _):
        assert await _get(port, "/livez") == (200, "serving")
        status, text = await _get(port, "/readyz")
        assert status == 503
        assert "sound: group 'speaker' has no replica" in text

        assert await _get(port, "/drain") == (200, "drained")
        assert await _get(port, "/readyz") == (503, "the gateway is about to stop")
        assert server.coordinator.state.refusal is not None


async def _get(port: int, path: str) -> tuple[int, str]:
    async with asyncio.timeout(PATIENT_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
    return int(head.split()[1]), body.strip()
