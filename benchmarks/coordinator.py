"""What the gateway costs: a chunk's way through it, its fairness, and its memory.

The gateway is a process of its own, as always. This process plays the groups and the clients, and
beside them it talks to a bare gRPC echo, which crosses the same two connections and does nothing.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import grpc
import numpy as np

from benchmarks.report import Bar, alternate, main
from omni_config.resolution.inspection import config_hash
from omni_gateway.loading import load_config
from omni_wire.identity import RequestKey
from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.v1 import gateway_pb2_grpc as pb_grpc
from tests.support.gateway_process import TWO_LEVEL_STREAM, GatewayProcess, gateway_process
from tests.support.wire_groups import WireGroup

CHUNK_BYTES = 4096
LOCK_STEPS = 200
STREAMS = 64
WINDOWS = 15
WINDOW_STEPS = 6
WARM_REQUESTS = 16
OPEN_REQUESTS = 256
STALLED_STEPS = 1500
ECHO = "/benchmark.Echo/Echo"
MODULE = "examples.two_level_stream.topology"

Call = Any  # grpc.aio.UnaryStreamCall; its stubs cannot be subscripted at run time


@dataclass(frozen=True, slots=True)
class Site:
    """A gateway process with a fake group of each kind, and an echo process."""

    gateway: GatewayProcess
    writer: WireGroup
    text: WireGroup
    stub: pb_grpc.GatewayServiceAsyncStub
    echo: grpc.aio.Channel

    async def begun(self) -> tuple[Call, RequestKey]:
        """Open a stream and wait until the entry stage has its request."""
        call = self.stub.GenerateStream(pb.GenerateRequest(modalities=["text"]))
        submit = await self.writer.submits.get()
        await call.read()
        return call, submit.payload.key


def measure() -> Iterator[Bar]:
    """Measure every bar against one gateway."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            site = runner.run(stack.enter_async_context(_site()))
            # First, while the allocator has nothing in reserve.
            yield runner.run(_memory_per_request(site))
            yield _hop(site, runner)
            yield runner.run(_fairness(site))
            yield runner.run(_stalled_reader(site))
        finally:
            runner.run(stack.aclose())


def _hop(site: Site, runner: asyncio.Runner) -> Bar:
    """One chunk after the other, each sent when the one before has arrived."""
    call, key = runner.run(site.begun())
    mirror: Call = site.echo.stream_stream(ECHO)()
    chunk = np.zeros((1, CHUNK_BYTES // 8), np.int64)
    data = bytes(CHUNK_BYTES)

    async def through_gateway() -> None:
        for _ in range(LOCK_STEPS):
            site.text.output([key], "text", {"samples": chunk})
            await call.read()

    async def through_echo() -> None:
        for _ in range(LOCK_STEPS):
            await mirror.write(data)
            await mirror.read()

    ratios = alternate(
        lambda: runner.run(through_gateway()), lambda: runner.run(through_echo()), rounds=9
    )
    call.cancel()
    mirror.cancel()
    return ratios.at_most(
        4.0,
        bar="gateway hop per chunk",
        method=f"{CHUNK_BYTES // 1024} KiB chunk in lock step, over a bare gRPC echo",
    )


async def _fairness(site: Site) -> Bar:
    """All streams get a chunk per step; how much later than the median is the last percentile?

    A pause of the whole machine falls into one window, so the median window does not see it.
    """
    begun = [await site.begun() for _ in range(STREAMS)]
    await _window(site, begun, 0)
    spreads = [
        cuts[98] / cuts[49]
        for number in range(1, WINDOWS + 1)
        if (cuts := statistics.quantiles(await _window(site, begun, number), n=100))
    ]
    for call, _ in begun:
        call.cancel()
    spread = statistics.median(spreads)
    return Bar(
        f"p99 over p50 at {STREAMS} streams",
        spread,
        (min(spreads), max(spreads)),
        "<= 3x",
        spread <= 3,
        f"from the stage's post to each client; median of {WINDOWS} windows of {WINDOW_STEPS} "
        f"steps of {STREAMS} rows",
    )


async def _window(site: Site, begun: list[tuple[Call, RequestKey]], number: int) -> list[float]:
    """Send some steps to all streams; returns the seconds that every chunk took."""
    keys = [key for _, key in begun]
    chunks = np.zeros((STREAMS, CHUNK_BYTES // 8), np.int64)
    latencies: list[float] = []

    async def read(call: Call, sent: float, chunk_id: int) -> None:
        event = await call.read()
        latencies.append(perf_counter() - sent)
        _check(event, chunk_id)

    for step in range(number * WINDOW_STEPS, (number + 1) * WINDOW_STEPS):
        sent = perf_counter()
        site.text.output(keys, "text", {"samples": chunks})
        await asyncio.gather(*(read(call, sent, step) for call, _ in begun))
    return latencies


def _check(event: pb.GenerateEvent, chunk_id: int) -> None:
    if event.output.chunk_id != chunk_id:
        raise RuntimeError(f"chunk {event.output.chunk_id} came instead of {chunk_id}")


async def _memory_per_request(site: Site) -> Bar:
    """Open many requests and let them rest."""
    await _open_and_close(site, WARM_REQUESTS)
    before = site.gateway.rss_bytes
    begun = [await site.begun() for _ in range(OPEN_REQUESTS)]
    growth = (site.gateway.rss_bytes - before) / OPEN_REQUESTS / 1024
    for call, _ in begun:
        call.cancel()
    return Bar(
        "memory per open request",
        growth,
        (growth, growth),
        "<= 64 KiB",
        growth <= 64,
        f"resident growth of the gateway over {OPEN_REQUESTS} open streams",
    )


async def _open_and_close(site: Site, count: int) -> None:
    """Let everything that is made once be made."""
    begun = [await site.begun() for _ in range(count)]
    for call, _ in begun:
        call.cancel()
    for _ in begun:
        await site.text.aborts.get()


async def _stalled_reader(site: Site) -> Bar:
    """One client stops reading while its stage goes on; its neighbour reads everything."""
    stalled, stalled_key = await site.begun()
    quick, quick_key = await site.begun()
    chunks = np.zeros((2, 4 * CHUNK_BYTES // 8), np.int64)
    sizes = []
    for step in range(STALLED_STEPS):
        site.text.output([stalled_key, quick_key], "text", {"samples": chunks})
        event = await quick.read()
        _check(event, step)
        sizes.append(site.gateway.rss_bytes)
    held = site.text.stalled == {stalled_key}
    stalled.cancel()
    quick.cancel()
    half = len(sizes) // 2
    ratio = max(sizes[half:]) / max(sizes[:half])
    offered = STALLED_STEPS * 4 * CHUNK_BYTES >> 20
    return Bar(
        "memory under a stalled reader",
        ratio,
        (ratio, ratio),
        "<= 1.02x",
        ratio <= 1.02 and held,
        f"peak of the second half over the first, {offered} MiB offered to the stalled stream",
    )


@asynccontextmanager
async def _site() -> AsyncIterator[Site]:
    hash_of_config = config_hash(load_config(Path(TWO_LEVEL_STREAM), [MODULE]))
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(gateway_process("--log-level=WARNING"))
        groups = [
            await stack.enter_async_context(
                WireGroup(gateway.address, hash_of_config, name).running()
            )
            for name in ("writer", "text", "speaker")
        ]
        channel = grpc.aio.insecure_channel(gateway.address)
        await stack.enter_async_context(channel)
        echo = grpc.aio.insecure_channel(stack.enter_context(_echo_process()))
        await stack.enter_async_context(echo)
        yield Site(gateway, groups[0], groups[1], pb_grpc.GatewayServiceStub(channel), echo)


@contextmanager
def _echo_process() -> Iterator[str]:
    code = "from benchmarks.coordinator import echo; echo()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().decode().strip()
        finally:
            process.kill()


def echo() -> None:
    """Run the echo process."""
    asyncio.run(_serve_echo())


async def _serve_echo() -> None:
    """Send back every message; prints the address first."""

    async def send_back(messages: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
        async for message in messages:
            yield message

    service, method = ECHO[1:].split("/")
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(send_back)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(service, {method: handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    sys.exit(main(measure))
