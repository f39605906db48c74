"""`omni up` of the toy pipelines: real processes, real requests, real deaths."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from omni_runtime.process_end import process_ended
from omni_wire.trees import from_proto, to_proto
from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.v1 import gateway_pb2_grpc as pb_grpc
from tests.soak.requests import End, Plan, Received, ask
from tests.support.local_pipeline import CHECKOUT, OMNI, LocalPipeline, local_pipeline
from tests.support.patience import PATIENT_SECONDS

READY = "the gateway listens on"
SPOKEN = Plan(start=7, count=5, speaks=True, leaves_after=None)

pytestmark = pytest.mark.slow


@pytest.fixture
def base() -> Iterator[Path]:
    """Return a directory whose path leaves room for sockets."""
    with tempfile.TemporaryDirectory(prefix="up-") as folder:
        yield Path(folder)


@asynccontextmanager
async def gateway(pipeline: LocalPipeline) -> AsyncIterator[pb_grpc.GatewayServiceAsyncStub]:
    async with grpc.aio.insecure_channel(pipeline.address) as channel:
        yield pb_grpc.GatewayServiceStub(channel)


async def echo(pipeline: LocalPipeline, text: str) -> Any:
    """Send a text through the stream call and return the final answer."""
    request = pb.GenerateRequest(inputs={"text": to_proto(text)})
    async with gateway(pipeline) as stub:
        events = [event async for event in stub.GenerateStream(request, timeout=PATIENT_SECONDS)]
    [final] = [event.output for event in events if event.output.final]
    return from_proto(final.data)


async def test_one_request_and_a_clean_stop(base: Path) -> None:
    async with local_pipeline("echo", base) as pipeline:
        await pipeline.saw(READY)
        pids = pipeline.pids
        assert pids.keys() == {"gateway", "front", "back"}
        assert await echo(pipeline, " abc ") == {"text": "cba", "length": 3}
        assert await pipeline.stop() == 0
        for pid in pids.values():
            await process_ended(pid)
    assert os.listdir(base) == []


async def test_a_killed_group_comes_back_and_serves_again(base: Path) -> None:
    async with local_pipeline("two_level_stream", base) as pipeline:
        await pipeline.saw(READY)
        for name in ("speaker@r0", "speaker@r1"):
            await pipeline.kill(name)
        for name in ("speaker@r0", "speaker@r1"):
            await pipeline.recovered(name)
        async with gateway(pipeline) as stub:
            assert (await ask(stub, SPOKEN)).end is End.SUCCESS


async def test_a_killed_gateway_comes_back_with_all_its_groups(base: Path) -> None:
    async with local_pipeline("echo", base) as pipeline:
        await pipeline.saw(READY)
        await pipeline.kill("gateway")
        await pipeline.recovered("gateway")
        assert await echo(pipeline, "abc") == {"text": "cba", "length": 3}


async def test_a_stop_lets_a_request_in_flight_finish(base: Path) -> None:
    slow = ("--writer.factory.step_seconds", "0.02")
    plan, received = Plan(start=0, count=30, speaks=True, leaves_after=None), Received()
    async with local_pipeline("two_level_stream", base, *slow) as pipeline:
        await pipeline.saw(READY)
        async with gateway(pipeline) as stub:
            call = stub.GenerateStream(plan.message(), timeout=PATIENT_SECONDS)
            received.add(await anext(aiter(call)))
            stopping = asyncio.create_task(pipeline.stop())
            async for event in call:
                received.add(event)
        assert received.problem(plan) == ""
        assert await stopping == 0


async def test_children_die_with_a_launcher_that_is_killed(base: Path) -> None:
    async with local_pipeline("echo", base) as pipeline:
        await pipeline.saw(READY)
        pids = pipeline.pids
        os.kill(pipeline.pid, signal.SIGKILL)
        await pipeline.wait()
        async with asyncio.timeout(PATIENT_SECONDS):
            for pid in pids.values():
                await process_ended(pid)
    async with local_pipeline("echo", base) as pipeline:
        await pipeline.saw(READY)
        assert len(os.listdir(base)) == 1, "the next run removes what was left"


async def test_a_busy_port_ends_the_start_with_the_reason(base: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        async with local_pipeline("echo", base, "--port", port) as pipeline:
            await pipeline.saw("gateway ended: exit code")
            assert await pipeline.wait() == 1
    assert any(port in line for line in pipeline.lines if line.startswith("omni"))
    assert os.listdir(base) == []


async def test_a_plan_only_pipeline_is_refused_by_name(base: Path) -> None:
    refused = await asyncio.create_subprocess_exec(
        str(OMNI),
        *("up", "-f", "examples/qwen3-tts.yaml", "--endpoints.base_path", str(base / "run")),
        cwd=CHECKOUT,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await refused.communicate()
    assert refused.returncode == 1
    assert b"Qwen3TTSPipelineConfig is plan-only and cannot be started" in errors
    assert not (base / "run").exists()
