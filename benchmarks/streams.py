"""Two hundred streams at once: some readers leave, one stalls, and the others notice nothing.

The gateway is a process of its own. This process plays the stages, a step at a time for all
streams, and the clients, who read server-sent events as they come.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import httpx
import numpy as np

from benchmarks.report import Bar, count, main
from omni_config.resolution.inspection import config_hash
from omni_gateway.loading import load_config
from omni_wire.identity import RequestKey
from omni_wire.tensor import NumpyArray
from tests.support.event_streams import EventReader
from tests.support.gateway_process import GatewayProcess, gateway_process
from tests.support.wire_groups import WireGroup

CONFIG = Path("examples/chat/pipeline.yaml")
MODULE = "examples.chat.topology"
BODY = {"model": "parrot", "messages": [{"role": "user", "content": "hello"}]}
STAGES = ("writer", "decode", "code2wav")

STREAMS = 200
LEAVING = STREAMS // 5
WINDOWS = 10
WINDOW_STEPS = 8
WORD = b"a word "
STALLED_BYTES = 64 << 10
"""A step's text for the reader that stalls: enough to fill every buffer on its way."""
SETTLE_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Client:
    """A reader, and its request as the stages know it."""

    events: EventReader
    key: RequestKey


@dataclass(eq=False)
class Site:
    """A gateway, the group that serves it, and its clients."""

    gateway: GatewayProcess
    group: WireGroup
    staying: list[Client] = field(default_factory=list)
    leaving: list[Client] = field(default_factory=list)
    stalled: list[Client] = field(default_factory=list)

    async def begun(self, buffer_bytes: int | None = None) -> Client:
        """Open a stream."""
        events = await EventReader.asked(self.gateway.url, BODY, buffer_bytes)
        submit = await self.group.submits.get()
        return Client(events, submit.payload.key)

    def step(self, clients: Sequence[Client], word: bytes = WORD) -> None:
        """Write one word to each of these."""
        text = np.tile(np.frombuffer(word, np.uint8), (len(clients), 1))
        sizes = np.full(len(clients), len(word), np.int32)
        tokens = np.ones(len(clients), np.int32)
        columns: dict[str, NumpyArray] = {"text": text, "bytes": sizes, "tokens": tokens}
        self.group.output([client.key for client in clients], "decode", columns)

    async def metrics(self) -> Mapping[str, float]:
        """Return what the gateway counted."""
        async with httpx.AsyncClient() as client:
            page = (await client.get(f"{self.gateway.url}/metrics")).text
        lines = [line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in lines}


def measure() -> Iterator[Bar]:
    """Measure every bar against one gateway."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            site = runner.run(stack.enter_async_context(_site()))
            runner.run(_begin(site))
            yield from runner.run(_latency_and_memory(site))
            yield runner.run(_unaccounted(site))
        finally:
            runner.run(stack.aclose())


async def _begin(site: Site) -> None:
    site.stalled = [await site.begun(buffer_bytes=4096)]
    site.leaving = [await site.begun() for _ in range(LEAVING)]
    site.staying = [await site.begun() for _ in range(STREAMS - LEAVING - 1)]
    site.step([*site.leaving, *site.staying])
    for client in (*site.leaving, *site.staying):
        await client.events.begun()
        # The role, then the word.
        await client.events.event()
        await client.events.event()


async def _latency_and_memory(site: Site) -> list[Bar]:
    """All readers get a word per step; how much later than the median is the last percentile?

    A pause of the whole machine falls into one window, so the median window does not see it.
    """
    await _window(site, 0)
    before = site.gateway.rss_bytes
    cuts = [
        statistics.quantiles(await _window(site, LEAVING // WINDOWS), n=100) for _ in range(WINDOWS)
    ]
    spreads = [one[98] / one[49] for one in cuts]
    spread = statistics.median(spreads)
    growth = (site.gateway.rss_bytes - before) / (1 << 20)
    reading = len(site.staying)
    latency = Bar(
        f"p99 over p50 of {STREAMS} streams, {LEAVING} leaving, one stalled",
        spread,
        (min(spreads), max(spreads)),
        "<= 3x",
        spread <= 3,
        f"from the stage's post to {reading} readers of server-sent events; median of {WINDOWS} "
        f"windows of {WINDOW_STEPS} steps; p50 {statistics.median(one[49] for one in cuts):.3g} s",
    )
    offered = STALLED_BYTES * WINDOW_STEPS * (WINDOWS + 1) / (1 << 20)
    memory = Bar(
        "memory of a gateway with a stalled reader, MiB",
        growth,
        (growth, growth),
        "<= 8",
        growth <= 8 and site.group.stalled == {site.stalled[0].key},
        f"resident growth over the {WINDOWS} windows; {offered:.3g} MiB offered to one who "
        "reads nothing",
    )
    return [latency, memory]


async def _window(site: Site, leaving: int) -> list[float]:
    """Send some steps to all streams; returns the seconds that every word took."""
    latencies: list[float] = []

    async def read(client: Client, sent: float) -> None:
        await client.events.event()
        latencies.append(perf_counter() - sent)

    for step in range(WINDOW_STEPS):
        everybody = [*site.leaving, *site.staying]
        gone = [site.leaving.pop() for _ in range(leaving if step == WINDOW_STEPS // 2 else 0)]
        site.step(site.stalled, bytes(STALLED_BYTES).replace(b"\0", b"x"))
        sent = perf_counter()
        site.step(everybody)
        for client in gone:
            client.events.leave()
        await asyncio.gather(*(read(client, sent) for client in (*site.leaving, *site.staying)))
    return latencies


async def _unaccounted(site: Site) -> Bar:
    """End everything, and look whether what began also ended, each as it did."""
    site.stalled[0].events.leave()
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    for client in site.staying:
        site.group.complete(client.key, "decode", {"finish_reason": "stop", "usage": usage})
    await asyncio.gather(*(client.events.text() for client in site.staying))
    for _ in range(LEAVING + 1):
        async with asyncio.timeout(SETTLE_SECONDS):
            await site.group.aborts.get()
    found = await site.metrics()
    wanted = {
        "omni_gateway_requests_submitted_total": STREAMS,
        'omni_gateway_requests_finished_total{phase="completed",reason=""}': len(site.staying),
        'omni_gateway_requests_finished_total{phase="aborted",reason="REQUEST_ABORTED"}': (
            LEAVING + 1
        ),
        'omni_gateway_chat_answers_total{api="http",reason="stop"}': len(site.staying),
        'omni_gateway_chat_answers_total{api="http",reason="REQUEST_ABORTED"}': LEAVING + 1,
        "omni_gateway_requests_in_flight": 0,
        "omni_gateway_output_backlog_bytes": 0,
    }
    wrong = sum(abs(int(found.get(name, -1)) - value) for name, value in wanted.items())
    return count(
        wrong, 0, bar="streams unaccounted for", method="began, completed, left and still there"
    )


@asynccontextmanager
async def _site() -> AsyncIterator[Site]:
    hash_of_config = config_hash(load_config(CONFIG, [MODULE]))
    async with gateway_process(
        "--http=127.0.0.1:0", "--log-level=WARNING", config=CONFIG, pipelines=[MODULE]
    ) as gateway:
        group = WireGroup(gateway.address, hash_of_config, "chat", instances=STAGES)
        async with group.running():
            yield Site(gateway, group)


if __name__ == "__main__":
    sys.exit(main(measure))
