"""What stages promise each other, over every kind of edge, with streams that break at random."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from examples.fan_out.topology import FanOutPipelineConfig
from examples.two_level_stream.stages import FRAME_SAMPLES
from examples.two_level_stream.topology import TwoLevelStreamPipelineConfig
from tests.support.stage_calls import Call
from tests.support.stage_cluster import TRANSPORTS, Cluster, Transport, running

Run = Callable[..., AbstractAsyncContextManager[Cluster]]


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Transport:
    chosen: Transport = request.param
    return chosen


@pytest.fixture
def run(transport: Transport) -> Any:
    """Run a pipeline over the transport, in a directory short enough for socket paths."""
    with TemporaryDirectory(prefix="omni") as directory:

        def start(pipeline: Any, cuts: random.Random | None = None, **arguments: Any) -> Any:
            return running(pipeline, transport, Path(directory), cuts, **arguments)

        yield start


def submit(cluster: Cluster, name: str, start: int, count: int) -> Call:
    return cluster.submit(name, params={"start": start, "count": count})


def assert_spoken(call: Call, start: int, count: int) -> None:
    numbers = list(range(start, start + count))
    assert call.error is None
    assert call.rows.get("text", []) == numbers
    assert call.rows.get("sound", []) == [[number] * FRAME_SAMPLES for number in numbers]
    assert call.results["text"] == {"chunks": count, "total": sum(numbers)}


async def test_many_requests_share_steps_and_come_out_whole(run: Run) -> None:
    async with run(TwoLevelStreamPipelineConfig) as cluster:
        calls = [submit(cluster, f"r{n}", n, n) for n in range(24)]
        await cluster.end(*calls)
        for n, call in enumerate(calls):
            assert_spoken(call, n, n)
        await cluster.empty()


async def test_broken_streams_neither_lose_nor_repeat_a_chunk(run: Run) -> None:
    async with run(TwoLevelStreamPipelineConfig, random.Random(7)) as cluster:
        calls = [submit(cluster, f"r{n}", n, 30) for n in range(4)]
        await cluster.end(*calls)
        for n, call in enumerate(calls):
            assert_spoken(call, n, 30)
        await cluster.empty()


async def test_payloads_meet_whatever_way_they_took(run: Run) -> None:
    numbers = list(range(20_000))
    async with run(FanOutPipelineConfig, random.Random(3)) as cluster:
        both = cluster.submit("both", inputs={"numbers": numbers})
        one = cluster.submit("one", inputs={"numbers": numbers}, params={"sides": ["largest"]})
        none = cluster.submit("none", inputs={"numbers": numbers}, params={"sides": []})
        await cluster.end(both, one, none)
        total, largest = float(sum(numbers)), float(max(numbers))
        assert both.results["join"] == {"total": total, "largest": largest}
        assert one.results["join"] == {"largest": largest}
        assert none.results["join"] == {}
        await cluster.empty()


@pytest.mark.parametrize("boundary", range(8))
async def test_an_abort_at_any_moment_leaves_nothing(run: Run, boundary: int) -> None:
    async with run(TwoLevelStreamPipelineConfig) as cluster:
        leaving = submit(cluster, "leaving", 0, 1000)
        staying = submit(cluster, "staying", 5, 10)
        await cluster.until(lambda: len(leaving.rows.get("sound", ())) >= boundary)
        cluster.abort(leaving)
        await cluster.end(staying)
        assert_spoken(staying, 5, 10)
        await cluster.empty()


@pytest.mark.parametrize("transport", ["grpc", "shm"], indirect=True)
async def test_a_dead_replica_fails_its_own_requests_only(run: Run) -> None:
    async with run(TwoLevelStreamPipelineConfig, writer={"step_seconds": 0.002}) as cluster:
        # Replicas take turns, the second one first; what the other has to say does not end.
        counts = [100, 100_000, 100, 100_000]
        calls = [submit(cluster, f"r{n}", n, count) for n, count in enumerate(counts)]
        await cluster.until(lambda: all(call.rows.get("sound") for call in calls))
        await cluster.kill("speaker@r0")
        late = submit(cluster, "late", 50, 5)
        await cluster.end(*calls, late)
        assert_spoken(late, 50, 5)
        for n, call in enumerate(calls):
            if n % 2:
                assert call.bindings["speaker"].instance == "speaker@r0"
                assert call.error is not None
                assert call.error.reason == "INSTANCE_LOST"
                assert call.error.retryable
            else:
                assert_spoken(call, n, 100)
        await cluster.start("speaker@r0")
        again = [submit(cluster, f"again{n}", n, 3) for n in range(2)]
        await cluster.end(*again)
        for n, call in enumerate(again):
            assert_spoken(call, n, 3)
        await cluster.empty()


async def test_a_reader_that_stops_holds_back_itself_alone(run: Run) -> None:
    credit = 16 * 1024
    async with run(TwoLevelStreamPipelineConfig, comm={"request_credit_bytes": credit}) as cluster:
        slow = submit(cluster, "slow", 0, 1000)
        await cluster.until(lambda: bool(slow.rows.get("sound")))
        cluster.stall(slow, True)
        others = [submit(cluster, f"r{n}", n, 50) for n in range(4)]
        await cluster.end(*others)
        for n, call in enumerate(others):
            assert_spoken(call, n, 50)
        assert not slow.ended
        # Three edges lead to the client; each holds its credit and the steps it takes to notice,
        # more of them on a busy machine. Unbounded, the stream fills 480 KiB.
        assert cluster.edge_bytes < 3 * 4 * credit
        cluster.stall(slow, False)
        await cluster.end(slow)
        assert_spoken(slow, 0, 1000)
        await cluster.empty()


async def test_a_request_that_a_hook_chokes_on_fails_alone(run: Run) -> None:
    async with run(FanOutPipelineConfig) as cluster:
        bad = cluster.submit("bad", inputs={"numbers": [1]}, params={"sides": ["nowhere"]})
        good = cluster.submit("good", inputs={"numbers": [1, 2]})
        await cluster.end(bad, good)
        assert bad.error is not None
        assert bad.error.reason == "INVALID_REQUEST"
        assert good.results["join"] == {"total": 3.0, "largest": 2.0}
        await cluster.empty()


async def test_a_stage_that_ends_before_its_input_leaves_nothing(run: Run) -> None:
    async with run(TwoLevelStreamPipelineConfig, speaker={"most_frames": 3}) as cluster:
        call = submit(cluster, "short", 0, 200)
        await cluster.end(call)
        assert call.error is None
        assert len(call.rows["text"]) == 200
        assert call.rows["sound"] == [[number] * FRAME_SAMPLES for number in range(3)]
        await cluster.empty()


@pytest.mark.parametrize("count", [0, 1])
async def test_short_streams_end_as_long_ones_do(run: Run, count: int) -> None:
    async with run(TwoLevelStreamPipelineConfig) as cluster:
        call = submit(cluster, "short", 9, count)
        await cluster.end(call)
        assert_spoken(call, 9, count)
        await cluster.empty()


async def test_a_draining_process_waits_for_what_is_bound_to_it(run: Run) -> None:
    async with run(TwoLevelStreamPipelineConfig) as cluster:
        unbound = asyncio.Event()
        call = submit(cluster, "bound", 3, 20)
        # Nothing has reached the later stages yet, so none of them holds anything.
        hosts = [process.host for process in cluster.processes.values()]
        draining = asyncio.gather(*(host.drain(60, unbound) for host in hosts))
        await cluster.end(call)
        assert_spoken(call, 3, 20)
        assert not draining.done()
        unbound.set()
        await draining
        await cluster.empty()
