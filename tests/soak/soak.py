"""Many requests through the two-level stream while its groups are killed and clients leave.

    python -m tests.soak.soak --requests 2000 --concurrency 64

Every request must end in exactly one of success, typed failure and cancelled; no success may be
wrong; memory and open files must be back where they were after a warm-up of the same concurrency.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from random import Random

import grpc

from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.v1 import gateway_pb2_grpc as pb_grpc
from tests.soak.footprint import Footprint, resting
from tests.soak.requests import End, Outcome, Plan, ask
from tests.support.local_pipeline import GATEWAY, LocalPipeline, local_pipeline

EXAMPLE = "two_level_stream"
LEAVING = 0.1
GROWTH = 1.05
SETTLE_SECONDS = 60.0
RETRY_SECONDS = 0.2
"""How long a client waits that was told to come back."""


@dataclass(frozen=True, slots=True)
class Load:
    """How hard it goes.

    Attributes:
        kill_requests: mean number of requests that end between two kills.
        step_seconds: how long a step of the writer and the speaker takes.
    """

    requests: int = 2000
    concurrency: int = 64
    warm_up: int = 600
    kill_requests: int = 100
    step_seconds: float = 0.002
    seed: int = 0


@dataclass(slots=True)
class Report:
    """What came of a soak."""

    load: Load
    outcomes: list[Outcome] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    before: Footprint = field(default_factory=Footprint)
    after: Footprint = field(default_factory=Footprint)
    left_in_flight: int = 0
    ready_seconds: float = 0.0
    seconds: float = 0.0
    exit_code: int = -1
    left_files: tuple[str, ...] = ()

    @property
    def ends(self) -> Counter[End]:
        """How many requests ended in each way."""
        return Counter(outcome.end for outcome in self.outcomes)

    @property
    def problems(self) -> list[str]:
        """Everything that must not be."""
        return list(self._problems())

    def _problems(self) -> Iterator[str]:
        if len(self.outcomes) != self.load.requests:
            yield f"{len(self.outcomes)} of {self.load.requests} requests ended"
        yield from (each.detail for each in self.outcomes if each.end is End.WRONG)
        if not self.ends[End.SUCCESS]:
            yield "no request succeeded"
        if not self.kills:
            yield "no group was killed"
        if self.left_in_flight:
            yield f"{self.left_in_flight} requests are still in flight after the last one ended"
        yield from self.after.growth_over(self.before, GROWTH)
        if self.exit_code != 0:
            yield f"the launcher ended with {self.exit_code}"
        if self.left_files:
            yield f"left behind: {', '.join(self.left_files)}"

    def lines(self) -> Iterator[str]:
        """Return the report as text."""
        yield f"ready in {self.ready_seconds:.1f} s"
        at_once, seconds = self.load.concurrency, self.seconds
        yield f"{len(self.outcomes)} requests, {at_once} at once, in {seconds:.1f} s"
        yield f"  groups killed: {self.kills.total()}"
        for name, count in sorted(self.kills.items()):
            yield f"    {name}: {count}"
        for end in End:
            yield f"  {end}: {self.ends[end]}"
        reasons = Counter(each.detail for each in self.outcomes if each.end is End.FAILURE)
        for reason, count in reasons.most_common():
            yield f"    {reason}: {count}"
        yield f"  memory: {self.before} -> {self.after}"
        yield from (f"PROBLEM: {problem}" for problem in self.problems)


class Progress:
    """The requests that have ended, for whoever waits for more of them."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self._changed = asyncio.Event()

    def add(self, outcome: Outcome) -> None:
        """Note how a request ended."""
        self.outcomes.append(outcome)
        self._changed.set()

    async def reached(self, count: int) -> None:
        """Wait until so many have ended."""
        while len(self.outcomes) < count:
            self._changed.clear()
            await self._changed.wait()


async def soak(load: Load) -> Report:
    """Run the whole soak and report."""
    report = Report(load)
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        base = Path(name)
        began = time.monotonic()
        arguments = [
            word
            for stage in ("writer", "speaker")
            for word in (f"--{stage}.factory.step_seconds", str(load.step_seconds))
        ]
        async with local_pipeline(EXAMPLE, base, *arguments) as pipeline:
            await pipeline.saw("the gateway listens on")
            report.ready_seconds = time.monotonic() - began
            await _under_load(pipeline, report)
            report.exit_code = await pipeline.stop()
        report.left_files = tuple(os.listdir(base))
    return report


async def _under_load(pipeline: LocalPipeline, report: Report) -> None:
    load, random = report.load, Random(report.load.seed)
    async with grpc.aio.insecure_channel(pipeline.address) as channel:
        stub = pb_grpc.GatewayServiceStub(channel)
        await _ask_all(stub, [Plan.drawn(random, LEAVING) for _ in range(load.warm_up)], load)
        instances = await _ready_instances(stub)
        report.before = await resting(pipeline.pids | {"launcher": pipeline.pid})
        plans = [Plan.drawn(random, LEAVING) for _ in range(load.requests)]
        began = time.monotonic()
        progress = Progress()
        async with killing(pipeline, load, progress, random) as report.kills:
            report.outcomes = await _ask_all(stub, plans, load, progress)
        report.seconds = time.monotonic() - began
        for name in report.kills:
            await pipeline.recovered(name)
        report.left_in_flight = await _settled(stub, instances)
        report.after = await resting(pipeline.pids | {"launcher": pipeline.pid})


async def _ask_all(
    stub: pb_grpc.GatewayServiceAsyncStub,
    plans: list[Plan],
    load: Load,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Send every request, so many at a time."""
    progress = progress or Progress()
    waiting = iter(plans)

    async def client() -> None:
        for plan in waiting:
            outcome = await ask(stub, plan)
            progress.add(outcome)
            if outcome.retryable:
                await asyncio.sleep(RETRY_SECONDS)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(load.concurrency):
            tasks.create_task(client())
    return progress.outcomes


@asynccontextmanager
async def killing(
    pipeline: LocalPipeline, load: Load, progress: Progress, random: Random
) -> AsyncIterator[Counter[str]]:
    """Kill a group every now and then until all requests have ended; yield who was killed.

    By their number and not by a clock: on a slow machine a clock would kill what has hardly begun.
    """
    kills: Counter[str] = Counter()

    async def kill() -> None:
        mean = load.kill_requests
        while True:
            due = len(progress.outcomes) + random.randint(mean // 2, 3 * mean // 2)
            if due > load.requests:
                return
            await progress.reached(due)
            groups = sorted(pipeline.pids.keys() - {GATEWAY})
            if groups:
                name = random.choice(groups)
                await pipeline.kill(name)
                kills[name] += 1

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(kill())
        yield kills


async def _settled(stub: pb_grpc.GatewayServiceAsyncStub, instances: int) -> int:
    """Wait until so many instances are ready and idle; return how many requests they still hold
    when they never are."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        seen = [each for stage in (await _pipeline(stub)).stages for each in stage.instances]
        held = sum(each.in_flight + each.queued for each in seen)
        if not held and sum(each.ready for each in seen) == instances:
            return 0
        if time.monotonic() > deadline:
            return held
        await asyncio.sleep(RETRY_SECONDS)


async def _ready_instances(stub: pb_grpc.GatewayServiceAsyncStub) -> int:
    stages = (await _pipeline(stub)).stages
    return sum(each.ready for stage in stages for each in stage.instances)


async def _pipeline(stub: pb_grpc.GatewayServiceAsyncStub) -> pb.GetPipelineResponse:
    return await stub.GetPipeline(pb.GetPipelineRequest())


def main() -> int:
    """Run the soak and print the report; returns 1 when something must not be."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option in fields(Load):
        name = f"--{option.name.replace('_', '-')}"
        parser.add_argument(name, type=type(option.default), default=option.default)
    report = asyncio.run(soak(Load(**vars(parser.parse_args()))))
    print("\n".join(report.lines()))
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
