"""The examples that stand for shapes of pipelines, each started by its one command."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from omni_wire.trees import from_proto, to_proto
from omni_wire.v1 import gateway_pb2, gateway_pb2_grpc
from tests.support.local_pipeline import local_pipeline

READY = "the gateway listens on"

pytestmark = pytest.mark.slow


@pytest.fixture
def base() -> Iterator[Path]:
    """Return a directory whose path leaves room for sockets."""
    with tempfile.TemporaryDirectory(prefix="toy-") as folder:
        yield Path(folder)


async def outputs(address: str, inputs: dict[str, Any], **params: Any) -> list[Any]:
    """Return the data of everything a pipeline answers to one request."""
    request = gateway_pb2.GenerateRequest(
        inputs={name: to_proto(value) for name, value in inputs.items()},
        params={name: to_proto(value) for name, value in params.items()},
    )
    async with aio.insecure_channel(address) as channel:
        stub = gateway_pb2_grpc.GatewayServiceStub(channel)
        events = [event async for event in stub.GenerateStream(request, timeout=60)]
    return [from_proto(event.output.data) for event in events if event.HasField("output")]


async def test_a_fan_out_waits_for_the_sides_that_were_asked(base: Path) -> None:
    async with local_pipeline("fan_out", base) as pipeline:
        await pipeline.saw(READY)
        numbers = {"numbers": [3.0, 9.0, 4.0]}
        [both] = await outputs(pipeline.address, numbers)
        assert both == {"total": 16.0, "largest": 9.0}
        [one] = await outputs(pipeline.address, numbers, sides=["largest"])
        assert one == {"largest": 9.0}
        with pytest.raises(aio.AioRpcError, match="subset of"):
            await outputs(pipeline.address, numbers, sides=["smallest"])


async def test_two_ranks_generate_as_one_stage(base: Path) -> None:
    pytest.importorskip("torch")
    async with local_pipeline("tensor_parallel", base) as pipeline:
        await pipeline.saw(READY)
        *steps, final = await outputs(pipeline.address, {}, prompt=7, max_tokens=12)
        assert len(steps) == 12
        assert final == {"tokens": [int(step["number"].numpy()) for step in steps]}
