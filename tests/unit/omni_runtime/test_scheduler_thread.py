"""Between a scheduler's thread and the loop: order, bounds, and what a crash means."""

from __future__ import annotations

import asyncio
import threading

import pytest

from omni_runtime.liveness import stuck_seconds
from omni_runtime.scheduler import Admitted, Heartbeat, Inbox, NewRequest, Outbox, OutboxMessage
from omni_runtime.scheduler_thread import OUTBOX_LIMIT, SchedulerCrashed, SchedulerThread
from tests.support.stage_events import key, payload


class Talking:
    """Puts a number of messages and then waits, or breaks."""

    def __init__(self, count: int, *, breaks: bool = False) -> None:
        self.inbox = Inbox()
        self.heartbeat = Heartbeat()
        self.put = 0
        self._count = count
        self._breaks = breaks
        self._stopped = threading.Event()

    def run(self, outbox: Outbox) -> None:
        for number in range(self._count):
            outbox.put(Admitted(key(str(number))))
            self.put += 1
        if self._breaks:
            raise MemoryError("no more")
        self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()


async def test_messages_reach_the_loop_in_order() -> None:
    count = 5 * OUTBOX_LIMIT
    heard: list[OutboxMessage] = []
    everything = asyncio.Event()

    def handle(message: OutboxMessage) -> None:
        heard.append(message)
        if len(heard) == count:
            everything.set()

    thread = SchedulerThread("talking", Talking(count), handle)
    thread.start()
    await everything.wait()
    assert heard == [Admitted(key(str(number))) for number in range(count)]
    thread.stop()
    await thread.wait()


async def test_a_scheduler_cannot_outrun_the_loop() -> None:
    talking = Talking(10 * OUTBOX_LIMIT)
    most_waiting = 0
    heard = 0
    done = asyncio.Event()

    def handle(message: OutboxMessage) -> None:
        nonlocal heard, most_waiting
        most_waiting = max(most_waiting, talking.put - heard)
        heard += 1
        if heard == 10 * OUTBOX_LIMIT:
            done.set()

    thread = SchedulerThread("talking", talking, handle)
    thread.start()
    await done.wait()
    assert most_waiting <= OUTBOX_LIMIT + 1
    thread.stop()
    await thread.wait()


async def test_a_crash_reaches_whoever_waits() -> None:
    thread = SchedulerThread("breaking", Talking(1, breaks=True), lambda _: None)
    thread.start()
    with pytest.raises(SchedulerCrashed, match="no more") as caught:
        await thread.wait()
    assert isinstance(caught.value.__cause__, MemoryError)


def test_liveness_is_the_age_of_what_does_not_move() -> None:
    scheduler = Talking(0)
    started = scheduler.heartbeat.begin()
    assert stuck_seconds(scheduler, started + 7) == pytest.approx(7)
    scheduler.heartbeat.end(started)
    assert stuck_seconds(scheduler, started + 100) == 0
    scheduler.inbox.put(NewRequest(payload()))
    waiting_since = scheduler.inbox.waiting_since
    assert waiting_since is not None
    assert stuck_seconds(scheduler, waiting_since + 9) == pytest.approx(9)
    scheduler.inbox.drain()
    assert stuck_seconds(scheduler, waiting_since + 9) == 0
