"""Process groups from the outside: what they serve, how they stop, what their death means."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from omni_runtime.liveness import LIVENESS
from tests.support.group_processes import START_SECONDS, Deployment, deployment
from tests.support.ports import free_port, http_get

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

DASHBOARD = Path(__file__).resolve().parents[2] / "charts/omnipipe/dashboards/omnipipe.json"
GROUP_METRIC = re.compile(r"\bomni_(?:stage|edge)_[a-z_]+")

LIGHT_GROUP_BYTES = 80 * 1024 * 1024

SLOW_WRITER = """
stages:
  writer:
    factory: {step_seconds: 0.005}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def echo() -> AsyncIterator[Deployment]:
    """The echo chain with both groups running."""
    async with deployment("echo") as made:
        await made.start("front", "back")
        yield made


async def test_a_chain_of_groups_answers(echo: Deployment) -> None:
    calls = [echo.gateway.submit(f"r{n}", inputs={"text": f" {n}! "}) for n in range(20)]
    bad = echo.gateway.submit("bad", inputs={"text": 5})
    await echo.gateway.end(*calls, bad)
    for n, call in enumerate(calls):
        assert call.results["answer"] == {"text": f"{n}!"[::-1], "length": len(f"{n}!")}
    assert bad.error is not None
    assert bad.error.reason == "INVALID_REQUEST"
    assert bad.error.stage == "trim"


async def test_a_light_group_is_small(echo: Deployment) -> None:
    await echo.gateway.end(echo.gateway.submit("r", inputs={"text": "x"}))
    assert echo.rss_bytes("front") < LIGHT_GROUP_BYTES
    assert echo.rss_bytes("back") < LIGHT_GROUP_BYTES


async def test_a_group_says_who_it_is_and_how_it_does(echo: Deployment) -> None:
    back = echo.gateway.groups["back"]
    assert back.hello.instances == ("reverse", "answer")
    assert back.hello.address == echo.runtime.endpoints.addresses["back"]
    await echo.gateway.end(echo.gateway.submit("r", inputs={"text": "x"}))
    await echo.gateway.until(
        lambda: "reverse" in back.stats and back.stats["reverse"].heartbeat > 0, "a heartbeat"
    )


async def test_a_group_tells_prometheus_and_probes_how_it_does(echo: Deployment) -> None:
    await echo.stop("back")
    await echo.gateway.until(lambda: "back" not in echo.gateway.groups, "the end of the group")
    port = free_port()
    await echo.start("back", extra=[f"--metrics-port={port}"])
    calls = [echo.gateway.submit(f"m{n}", inputs={"text": "x"}) for n in range(3)]
    await echo.gateway.end(*calls)
    page = await http_get(port, "/metrics")
    assert 'omni_stage_step_duration_seconds_count{stage="reverse"} 3.0' in page
    assert 'omni_stage_in_flight_requests{stage="answer"} 0.0' in page
    assert 'omni_edge_unreleased_bytes{peer="answer",stage="reverse"}' in page
    sent = re.search(r'omni_edge_sent_bytes_total{peer="answer",stage="reverse"} (\S+)', page)
    assert sent is not None
    assert float(sent[1]) > 0
    assert set(GROUP_METRIC.findall(DASHBOARD.read_text())) <= set(GROUP_METRIC.findall(page))
    async with aio.insecure_channel(echo.runtime.endpoints.addresses["back"]) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)  # its stub knows no methods
        for service in ("", LIVENESS):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_groups_that_die_or_drain_in_the_middle_of_a_stream() -> None:
    async with deployment("two_level_stream", SLOW_WRITER) as made:
        gateway = made.gateway
        await made.start("writer", "text", "speaker@r0")
        caught = gateway.submit("caught", params={"start": 0, "count": 100_000})
        await gateway.until(lambda: bool(caught.rows.get("sound")), "the first sound")
        made.processes["speaker@r0"].kill()
        await gateway.end(caught)
        assert caught.error is not None
        assert caught.error.retryable
        await gateway.until(lambda: "speaker@r0" not in gateway.groups, "the loss")
        await made.start("speaker@r0")

        # Three seconds at least: long after the signal has arrived and was passed on.
        bound = gateway.submit("bound", params={"start": 5, "count": 600})
        await gateway.until(lambda: bool(bound.rows.get("sound")), "the first sound")
        made.processes["writer"].send_signal(signal.SIGTERM)
        await gateway.until(lambda: gateway.groups["writer"].draining, "draining")
        late = gateway.submit("late", params={"start": 0, "count": 1})
        await gateway.end(late, bound)
        assert late.error is not None
        assert late.error.reason == "DRAINING"
        assert bound.rows["text"] == list(range(5, 605))
        assert len(bound.rows["sound"]) == 600
        assert await made.processes["writer"].wait() == 0


async def test_a_group_dies_with_its_launcher(echo: Deployment) -> None:
    launcher = (
        "import os, subprocess, sys, time\n"
        "os.environ['OMNI_SUPERVISOR_PID'] = str(os.getpid())\n"
        "child = subprocess.Popen(sys.argv[1:])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    await echo.stop("back")
    await echo.gateway.until(lambda: "back" not in echo.gateway.groups, "the end of the group")
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", launcher, *echo.command("back"), stdout=PIPE
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    await echo.gateway.ready("back")
    watched = os.pidfd_open(child)
    try:
        parent.kill()
        await parent.wait()
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(watched, ended.set)
        async with asyncio.timeout(START_SECONDS):
            await ended.wait()
    finally:
        asyncio.get_running_loop().remove_reader(watched)
        os.close(watched)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(["--group=nobody"], "no process group 'nobody'", id="unknown group"),
        pytest.param(["--gateway=10.0.0.1:1"], "--insecure", id="plaintext beyond this machine"),
        pytest.param(["--config=/nowhere.yaml"], "/nowhere.yaml", id="no configuration"),
    ],
)
async def test_a_group_that_cannot_start_says_why(arguments: list[str], complaint: str) -> None:
    async with deployment("echo") as made:
        process = await asyncio.create_subprocess_exec(
            *made.command("front"), *arguments, stderr=PIPE
        )
        _, said = await process.communicate()
        assert process.returncode == 1
        assert complaint in said.decode()
