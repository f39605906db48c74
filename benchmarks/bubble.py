"""How much a pipeline waits for itself: 32 requests through stages that only sleep.

Every stage sleeps in place of a model, so two cores are enough for any number of them and what is
left of the time is what the runtime adds. The stages run behind real gRPC edges, each with a server
of its own. The least possible time is what the slowest stage is busy for, plus one fill: what a
single request spends in the other stages, before the slowest one has work and after it has
finished.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.report import Bar, main
from omni_config.settings import CommConfig
from omni_runtime.routing import Routes
from omni_runtime.scheduler import Result, Scheduler, StepOutput
from omni_runtime.simple_scheduler import SimpleScheduler
from omni_runtime.stage_host import HostIdentity, StageHost
from omni_runtime.stage_wiring import StageWiring
from omni_runtime.streaming_scheduler import StepResult, StreamingScheduler, StreamRow
from omni_wire.credentials import Plaintext
from omni_wire.identity import GATEWAY_SOURCE, RequestKey, new_incarnation
from omni_wire.messages import Completed, GroupMessage, Payload
from omni_wire.server import WireServer
from omni_wire.stage_server import SERVICE

REQUESTS = 32
ROUNDS = 5
LIMIT = 1.05
GATEWAY = "0123456789ab"

CHAIN_SECONDS = {"prepare": 0.01, "encode": 0.02, "think": 0.05, "answer": 0.015}
"""Seconds per request of the stages of the payload chain."""

STREAM_SECONDS = {"write": 0.02, "speak": 0.01, "play": 0.005}
"""Seconds per step, for all requests together, of the stages of the stream."""

ROWS = 40
"""Rows a request streams."""


@dataclass(frozen=True, slots=True)
class Stub:
    """A stage of a benchmark: how it is wired, and what sleeps in it."""

    wiring: StageWiring
    scheduler: Scheduler
    seconds: float


class Sleeper:
    """Passes a chunk of `source` per request and step on; with no source, makes `ROWS` of them."""

    def __init__(self, seconds: float, source: str | None, target: str | None) -> None:
        self._seconds = seconds
        self._source = source
        self._target = target

    def open(self, key: RequestKey) -> list[int]:
        """Return how many rows a request has made, as a list of one."""
        return [0]

    def close(self, row: StreamRow[list[int]]) -> None:
        """Nothing is held."""

    def ready(self, row: StreamRow[list[int]]) -> bool:
        """Something has come, or everything has."""
        if self._source is None:
            return row.payload is not None
        ended = row.payload is not None and row.exhausted(self._source)
        return ended or bool(row.waiting(self._source))

    def step(self, rows: Sequence[StreamRow[list[int]]]) -> StepResult:
        """Sleep once for all rows."""
        going = [row for row in rows if self._goes_on(row)]
        finished = tuple(Result(row.key, None) for row in rows if row not in going)
        if not going:
            return StepResult(finished=finished)
        time.sleep(self._seconds)
        for row in going:
            row.state[0] += 1
            if self._source is not None:
                row.take(self._source)
        column = np.zeros((len(going), 16), np.int64)
        keys = tuple(row.key for row in going)
        return StepResult((StepOutput(0, keys, {"x": column}, self._target),), finished)

    def _goes_on(self, row: StreamRow[list[int]]) -> bool:
        if self._source is None:
            return row.state[0] < ROWS
        return bool(row.waiting(self._source))


def chain() -> list[Stub]:
    """Return stages that take one request at a time."""
    names = list(CHAIN_SECONDS)
    stubs = []
    for name, following in zip(names, [*names[1:], None], strict=True):
        routes = Routes() if following is None else Routes(next=(following,))
        seconds = CHAIN_SECONDS[name]
        scheduler = SimpleScheduler(_sleeping(seconds))
        stubs.append(Stub(StageWiring(name, name, routes=routes), scheduler, seconds))
    return stubs


def stream() -> list[Stub]:
    """Return stages that step all requests together, each feeding the next row by row."""
    names = list(STREAM_SECONDS)
    stubs = []
    for source, name, following in zip([None, *names], names, [*names[1:], None], strict=False):
        routes = Routes()
        if following is not None:
            routes = Routes(next=(following,), stream_to=(following,))
        seconds = STREAM_SECONDS[name]
        scheduler = StreamingScheduler(Sleeper(seconds, source, following))
        wiring = StageWiring(name, name, routes=routes, early_chunks=True)
        stubs.append(Stub(wiring, scheduler, seconds))
    return stubs


class Gateway:
    """Counts what completes; drops rows."""

    def __init__(self) -> None:
        self.left = REQUESTS
        self.done = asyncio.Event()

    def post(self, message: GroupMessage) -> None:
        """Take a message of the last stage."""
        if isinstance(message, Completed):
            self.left -= 1
            if not self.left:
                self.done.set()


async def run(stubs: Sequence[Stub]) -> float:
    """Send all requests at once; return the seconds until the last one completed."""
    with TemporaryDirectory(prefix="omni") as directory:
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            gateway, hosts = Gateway(), []
            for stub in stubs:
                hosts.append(await _hosted(stub, directory, gateway, stack, tasks))
            bindings = {name: it for host in hosts for name, it in host.endpoints.items()}
            entry = hosts[0].stages[stubs[0].wiring.instance]
            began = time.perf_counter()
            for number in range(REQUESTS):
                key = RequestKey(GATEWAY, str(number))
                payload = Payload(key, GATEWAY_SOURCE, None, bindings=bindings)
                entry.submit(payload, lambda key=None: None)
            await gateway.done.wait()
            seconds = time.perf_counter() - began
            for host in hosts:
                await host.close()
    return seconds


def bubble(make: Callable[[], list[Stub]], fill: Callable[[Sequence[Stub], Stub], float]) -> float:
    """Return how many times the least possible time one run took."""
    stubs = make()
    seconds = asyncio.run(run(stubs))
    slowest = max(stubs, key=lambda stub: stub.scheduler.heartbeat.busy_seconds)
    busy = slowest.scheduler.heartbeat.busy_seconds
    return seconds / (busy + fill(stubs, slowest))


def other_stages(stubs: Sequence[Stub], slowest: Stub) -> float:
    """Return one pass through all stages but the slowest."""
    return sum(stub.seconds for stub in stubs) - slowest.seconds


def measure() -> Iterable[Bar]:
    """Measure both pipelines."""
    logging.disable(logging.WARNING)  # every run ends by pulling the stages from under their edges
    for name, make in (("payload chain", chain), ("row stream", stream)):
        ratios = sorted(bubble(make, other_stages) for _ in range(ROUNDS))
        median = ratios[ROUNDS // 2]
        yield Bar(
            f"bubble, {name}",
            median,
            (ratios[0], ratios[-1]),
            f"<= {LIMIT}x",
            median <= LIMIT,
            f"{REQUESTS} requests over gRPC edges; wall time over busy time of the slowest stage "
            f"plus one fill; median of {ROUNDS} runs",
        )


async def _hosted(
    stub: Stub,
    directory: str,
    gateway: Gateway,
    stack: AsyncExitStack,
    tasks: asyncio.TaskGroup,
) -> StageHost:
    address = f"unix:{directory}/{stub.wiring.instance}.sock"
    host = StageHost(HostIdentity(address, new_incarnation(), Plaintext()), tasks)
    host.outlet.gateways[GATEWAY] = gateway
    host.add(stub.wiring, stub.scheduler, CommConfig())
    server = WireServer([SERVICE], [host.server.handler()])
    server.listen(address, Plaintext())
    await stack.enter_async_context(server)
    return host


def _sleeping(seconds: float) -> Callable[[Payload], Payload]:
    def compute(payload: Payload) -> Payload:
        time.sleep(seconds)
        return payload

    return compute


if __name__ == "__main__":
    sys.exit(main(measure))
