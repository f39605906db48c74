"""Copies of an engine under `omni up` hold their weights once, and live and die as a set."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

pytest.importorskip("torch")

from examples.shared_weights.checkpoint import write_checkpoint
from omni_wire.trees import from_proto, to_proto
from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.v1 import gateway_pb2_grpc as pb_grpc
from tests.support.local_pipeline import LocalPipeline, local_pipeline

READY = "the gateway listens on"
GIB = 2**30
OWN_SHARE = 0.05
LEADER, FOLLOWER = "engine@r0", "engine@r1"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def base() -> Iterator[Path]:
    """Return a directory whose path leaves room for sockets."""
    with tempfile.TemporaryDirectory(prefix="up-") as folder:
        yield Path(folder)


@asynccontextmanager
async def tables(base: Path, gib: float, *arguments: str) -> AsyncIterator[LocalPipeline]:
    """Run two copies of a table; they share it unless the arguments say otherwise."""
    write_checkpoint(base / "table", gib)
    folder = ("--model-path", str(base / "table"))
    async with local_pipeline("shared_weights", base / "run", *folder, *arguments) as pipeline:
        await pipeline.saw(READY)
        yield pipeline


async def answers(pipeline: LocalPipeline, rows: int) -> dict[str, Any]:
    """Return an answer of each copy by the name of its process; copies take turns."""
    found: dict[str, Any] = {}
    request = pb.GenerateRequest(inputs={"row": to_proto(7)})
    names = {pid: name for name, pid in pipeline.pids.items()}
    async with grpc.aio.insecure_channel(pipeline.address) as channel:
        stub = pb_grpc.GatewayServiceStub(channel)
        for _ in range(2):
            events = [event async for event in stub.GenerateStream(request, timeout=60)]
            [final] = [event.output for event in events if event.output.final]
            answer: Any = from_proto(final.data)
            assert (answer["number"], answer["sum"]) == (7.0, rows * (rows - 1) / 2)
            found[names[answer["pid"]]] = answer
    assert found.keys() == {LEADER, FOLLOWER}
    return found


async def test_a_gibibyte_is_there_once_and_comes_back_when_its_leader_dies(base: Path) -> None:
    async with tables(base, 1) as pipeline:
        for name, answer in (await answers(pipeline, 16384)).items():
            assert answer["private_bytes"] < OWN_SHARE * GIB, name
        pids = pipeline.pids

        await pipeline.kill(LEADER)
        await pipeline.saw(f"{FOLLOWER}: ready again")
        # Whichever comes first: it notices by itself, or it is told to stop.
        reasons = (f"{FOLLOWER} ended: lost {LEADER}", f"{FOLLOWER}: stopping, because {LEADER}")
        assert any(reason in line for line in pipeline.lines for reason in reasons)
        assert not set(pids.values()) & {pipeline.pids[name] for name in (LEADER, FOLLOWER)}
        for name, answer in (await answers(pipeline, 16384)).items():
            assert answer["private_bytes"] < OWN_SHARE * GIB, name
        assert await pipeline.stop() == 0
    assert os.listdir(base / "run") == []


@pytest.mark.storm
async def test_a_follower_that_dies_attaches_again_while_the_leader_goes_on(base: Path) -> None:
    async with tables(base, 0.01) as pipeline:
        leader = pipeline.pids[LEADER]
        await pipeline.kill(FOLLOWER)
        await pipeline.recovered(FOLLOWER)
        assert pipeline.pids[LEADER] == leader
        await answers(pipeline, 163)


@pytest.mark.storm
async def test_without_sharing_each_copy_has_its_own(base: Path) -> None:
    async with tables(base, 0.25, "--weight_share", "off") as pipeline:
        for answer in (await answers(pipeline, 4096)).values():
            assert answer["private_bytes"] > 0.25 * GIB
