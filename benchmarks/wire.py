"""What the wire costs beside gRPC itself: a scheduler step, a large payload, and a round trip.

Both ends run in this process, so its CPU time is that of sender and receiver together. Candidates
and baselines take turns in short rounds. The bare baselines do the least anybody can do with gRPC:
bytes in, bytes out, no header, no credit, no order beyond the stream's.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import numpy as np
import zmq
import zmq.asyncio

from benchmarks.ends.halves import copies, cpu_seconds, session_seconds
from benchmarks.ends.wire import Bench, ByteCall, connected
from benchmarks.report import Bar, Ratios, main
from omni_wire.edge import DEFAULT_OPTIONS
from omni_wire.identity import RequestKey
from omni_wire.messages import Payload, Rows, StepFrame
from omni_wire.tensor import NumpyArray
from omni_wire.v1 import session_pb2

ROWS, ROW_BYTES = 64, 8 * 1024
STEPS_PER_ROUND = 48
BULK_BYTES = 20 * 1024 * 1024
ROUNDS = 21
ECHOES_PER_ROUND = 200
# Steps that may be on their way, as a scheduler that is gated by credit has it.
STEPS_IN_FLIGHT = 6

KEYS = tuple(RequestKey("0123456789ab", f"request-{number:024d}") for number in range(ROWS))
HIDDEN = np.random.default_rng(0).random((ROWS, ROW_BYTES // 4), np.float32)
BULK = np.random.default_rng(1).random(BULK_BYTES // 4, np.float32)
BULK_PARTS = BULK_BYTES // DEFAULT_OPTIONS.part_bytes


def measure() -> Iterator[Bar]:
    """Measure every bar over one set of connections."""
    with tempfile.TemporaryDirectory() as directory, asyncio.Runner() as runner:
        yield from runner.run(_measure(f"unix:{directory}/wire.sock", f"ipc://{directory}/zmq"))


async def _measure(address: str, zmq_address: str) -> list[Bar]:
    async with connected(address, BULK_PARTS) as bench:
        return [
            *await _step_bars(bench),
            *await _bulk_bars(bench),
            await _round_trip(bench, zmq_address),
        ]


async def _step_bars(bench: Bench) -> list[Bar]:
    rows = [bytes(row) for row in HIDDEN]

    async def packed() -> None:
        first = bench.sink.count
        for step in range(STEPS_PER_ROUND):
            bench.edge.post(
                StepFrame("source", step, Rows(KEYS, [step] * ROWS), {"hidden": HIDDEN})
            )
            await bench.sink.reach(first + step + 1 - STEPS_IN_FLIGHT)
        await bench.sink.reach(first + STEPS_PER_ROUND)

    async def bare() -> None:
        first = bench.received.count
        steps: asyncio.Queue[NumpyArray] = asyncio.Queue()
        writer = asyncio.create_task(_write_steps(steps, bench.bare))
        for step in range(STEPS_PER_ROUND):
            steps.put_nowait(HIDDEN)
            await bench.received.reach(first + step + 1 - STEPS_IN_FLIGHT)
        await bench.received.reach(first + STEPS_PER_ROUND)
        await writer

    async def unhurried() -> None:
        first = bench.received.count
        for _ in range(STEPS_PER_ROUND):
            await bench.bare.write(HIDDEN.tobytes())
        await bench.received.reach(first + STEPS_PER_ROUND)

    async def typed() -> None:
        first = bench.rows_received.count
        for step in range(STEPS_PER_ROUND // 12):
            for key, row in zip(KEYS, rows, strict=True):
                await bench.typed.write(_typed_row(key, step, row))
        await bench.rows_received.reach(first + ROWS * (STEPS_PER_ROUND // 12))

    return _step_ratios(await _take_turns(packed, bare, unhurried, typed))


def _step_ratios(cost: list[list[float]]) -> list[Bar]:
    """The bars of a step: of packed, bare, unhurried and typed ones, by round."""
    typed_ratios = Ratios(tuple(a / (b * 12) for a, b in zip(cost[0], cost[3], strict=True)))
    size = f"{ROWS} rows of {ROW_BYTES // 1024} KiB per step, CPU of both ends"
    small = np.ascontiguousarray(HIDDEN[:, :4])
    steps = [
        StepFrame("source", step, Rows(KEYS, [step] * ROWS), {"hidden": small})
        for step in range(STEPS_PER_ROUND)
    ]
    micros = statistics.median(cost[0]) / STEPS_PER_ROUND / ROWS * 1e6
    return [
        typed_ratios.at_most(
            0.15,
            bar="wire: packed step / typed message per row",
            method=f"{size}, {micros:.3g} us per row",
        ),
        _ratios(cost[0], cost[1]).at_most(
            1.10,
            bar="wire: packed step / bare bytes of the same array",
            method=f"{size}, both posted without waiting",
        ),
        _shown(
            "wire: packed step / bare bytes, each write awaited",
            _ratios(cost[0], cost[2]),
            f"{size}; a scheduler cannot wait for its network",
        ),
        _shown(
            "wire: both halves of a session alone / bare bytes",
            _ratios([session_seconds(steps) for _ in cost[1]], cost[1]),
            "the same steps with rows of 16 bytes and no connection: what the caches leave of it",
        ),
    ]


async def _write_steps(steps: asyncio.Queue[NumpyArray], stream: ByteCall) -> None:
    """Send a round of steps: what the writer of a session does, and nothing else of it."""
    for _ in range(STEPS_PER_ROUND):
        step = await steps.get()
        await stream.write(step.tobytes())


def _typed_row(key: RequestKey, step: int, row: bytes) -> session_pb2.Envelope:
    message = session_pb2.Envelope(payload=row)
    message.header.done.key.gateway = key.gateway
    message.header.done.key.request_id = key.request_id
    message.header.done.chunks = step
    return message


async def _bulk_bars(bench: Bench) -> list[Bar]:
    part_bytes = DEFAULT_OPTIONS.part_bytes
    raw = BULK.data.cast("B")
    turns: list[float] = []

    async def payload() -> None:
        first = bench.sink.count
        bench.edge.post(Payload(KEYS[0], "source", {"states": BULK}))
        await bench.sink.reach(first + 1)

    async def watched() -> None:
        async with _turns_of_the_loop(turns):
            await payload()

    async def bare() -> None:
        first = bench.received.count
        for begin in range(0, BULK_BYTES, part_bytes):
            await bench.bulky.write(bytes(raw[begin : begin + part_bytes]))
        await bench.received.reach(first + BULK_PARTS)

    await payload()
    cost = await _take_turns(payload, bare)
    for _ in range(ROUNDS):
        await watched()
    size = f"{BULK_BYTES >> 20} MiB in parts of {part_bytes >> 10} KiB"
    copied_out, copied_in = copies(Payload(KEYS[0], "source", {"states": BULK}), BULK_BYTES)
    stall = sorted(turns)[len(turns) * 99 // 100] * 1e3
    return [
        _ratios(cost[0], cost[1]).at_most(
            1.15,
            bar="wire: large payload / bare bytes of the same array",
            method=f"{size}, CPU of both ends",
        ),
        _at_most(copied_out, 1.05, "wire: copies of a payload on its way out", size),
        _at_most(copied_in, 0.05, "wire: copies of a payload on its way in", size),
        _at_most(
            stall,
            5.0,
            "wire: longest turns of the event loop, p99 in ms",
            f"{size}, CPU time of {len(turns)} turns, both ends on one loop",
        ),
    ]


@asynccontextmanager
async def _turns_of_the_loop(turns: list[float]) -> AsyncIterator[None]:
    """Collect the CPU seconds of each turn of the loop: what a heartbeat on it would wait."""
    loop = asyncio.get_running_loop()
    last = time.thread_time()
    going = True

    def beat() -> None:
        nonlocal last
        now = time.thread_time()
        turns.append(now - last)
        last = now
        if going:
            # Not call_soon, which would keep the loop spinning between messages.
            loop.call_later(0.0005, beat)

    loop.call_soon(beat)
    yield
    going = False


async def _round_trip(bench: Bench, zmq_address: str) -> Bar:
    """There and back with one row, beside a bare gRPC echo and ZeroMQ; shown, not judged."""
    row, context = HIDDEN[:1], zmq.asyncio.Context()
    data = row.tobytes()
    server, client = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    server.bind(zmq_address)
    client.connect(zmq_address)

    async def edge() -> None:
        # One way; the way back is the same again.
        first = bench.sink.count
        bench.edge.post(StepFrame("source", 0, Rows(KEYS[:1], [0]), {"hidden": row}))
        await bench.sink.reach(first + 1)

    async def grpc_echo() -> None:
        await bench.echo.write(data)
        await bench.echo.read()

    async def zmq_echo() -> None:
        await client.send(data)
        await server.send(await server.recv())
        await client.recv()

    micros = {}
    for name, trip, ways in (("edge", edge, 2), ("gRPC", grpc_echo, 1), ("zmq", zmq_echo, 1)):
        times = [await _seconds_of(trip) for _ in range(ECHOES_PER_ROUND)]
        micros[name] = statistics.median(times) * ways * 1e6
    context.destroy(linger=0)
    ratio = micros["edge"] / micros["zmq"]
    shown = ", ".join(f"{name} {value:.0f} us" for name, value in micros.items())
    return Bar("wire: round trip / pyzmq", ratio, (ratio, ratio), "shown", True, shown)


async def _seconds_of(action: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await action()
    return time.perf_counter() - began


async def _take_turns(*actions: Callable[[], Awaitable[None]]) -> list[list[float]]:
    """CPU seconds of each action in each round; the order turns from round to round."""
    for action in actions:
        await action()
    costs: list[list[float]] = [[] for _ in actions]
    for number in range(ROUNDS):
        for offset in range(len(actions)):
            index = (number + offset) % len(actions)
            costs[index].append(await _cpu_seconds_of(actions[index]))
    return costs


async def _cpu_seconds_of(action: Callable[[], Awaitable[None]]) -> float:
    began = cpu_seconds()
    await action()
    return cpu_seconds() - began


def _ratios(candidate: list[float], baseline: list[float]) -> Ratios:
    return Ratios(tuple(above / below for above, below in zip(candidate, baseline, strict=True)))


def _at_most(value: float, limit: float, bar: str, method: str) -> Bar:
    return Bar(bar, value, (value, value), f"<= {limit:g}", value <= limit, method)


def _shown(bar: str, ratios: Ratios, method: str) -> Bar:
    """A comparison that is reported and not judged."""
    return Bar(bar, ratios.median, ratios.range, "shown", True, method)


if __name__ == "__main__":
    raise SystemExit(main(measure))
