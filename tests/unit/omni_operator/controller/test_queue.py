"""The keyed queue: one turn per key at a time, none lost, failures spaced out."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omni_operator.controller.queue import Backoff, KeyedQueue
from tests.support.virtual_time import in_virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


@in_virtual_time
async def test_many_changes_of_a_key_are_one_turn() -> None:
    queue: KeyedQueue[str] = KeyedQueue()
    for _ in range(100):
        queue.add("a", 0.1)
    assert len(queue) == 1
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


@in_virtual_time
async def test_the_earlier_of_two_turns_stays() -> None:
    queue: KeyedQueue[str] = KeyedQueue()
    began = now()
    queue.add("a", 600.0)
    queue.add("a", 5.0)
    queue.add("a", 900.0)
    await queue.get()
    assert now() - began == pytest.approx(5.0)
    queue.done("a")
    assert len(queue) == 0, "the later entries were the same turn"


@in_virtual_time
async def test_a_key_is_with_one_worker_at_a_time_and_gets_another_turn_after() -> None:
    queue: KeyedQueue[str] = KeyedQueue()
    queue.add("a")
    await queue.get()
    queue.add("a")
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(100.0)
    assert not second.done()
    queue.done("a")
    assert await second == "a"


@in_virtual_time
async def test_a_busy_key_does_not_hold_up_the_others() -> None:
    queue: KeyedQueue[str] = KeyedQueue()
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("b", 1.0)
    assert await queue.get() == "b"


@in_virtual_time
async def test_failures_wait_longer_each_time_up_to_a_limit_and_a_success_forgets_them() -> None:
    queue: KeyedQueue[str] = KeyedQueue(Backoff(first=1.0, limit=30.0), random.Random(1))
    queue.add("a")
    waits = []
    for _ in range(9):
        began = now()
        await queue.get()
        waits.append(now() - began)
        queue.done("a", failed=True)
    for number, wait in enumerate(waits[1:]):
        longest = min(30.0, 2.0**number)
        assert longest / 2 <= wait <= longest
    await queue.get()
    queue.done("a")
    assert queue.failures("a") == 0


@in_virtual_time
async def test_changes_do_not_call_a_failed_key_back_early_and_a_person_does() -> None:
    queue: KeyedQueue[str] = KeyedQueue(Backoff(first=60.0, limit=60.0))
    queue.add("a")
    await queue.get()
    queue.done("a", failed=True)
    failed = now()
    queue.add("a")
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(10.0)
    assert not waiting.done()
    queue.hurry("a")
    await waiting
    assert now() - failed == pytest.approx(10.0)


@in_virtual_time
async def test_the_api_servers_own_wish_to_wait_is_kept() -> None:
    queue: KeyedQueue[str] = KeyedQueue(Backoff(first=0.1, limit=1.0))
    queue.add("a")
    await queue.get()
    queue.done("a", failed=True, retry_after=45.0)
    failed = now()
    await queue.get()
    assert now() - failed == pytest.approx(45.0)


@in_virtual_time
async def test_it_says_what_waits_and_for_how_long() -> None:
    queue: KeyedQueue[str] = KeyedQueue()
    queue.add("later", 1000.0)
    assert (queue.ready(), queue.oldest_ready_seconds()) == (0, 0.0)
    queue.add("a")
    await asyncio.sleep(7.0)
    assert queue.ready() == 1
    assert queue.oldest_ready_seconds() == pytest.approx(7.0)
    await queue.get()
    assert (queue.ready(), list(queue.working)) == (0, ["a"])


CHANGES = st.lists(
    st.tuples(st.sampled_from("abcd"), st.floats(0.0, 20.0), st.booleans()), max_size=60
)


@settings(max_examples=60, deadline=None)
@given(changes=CHANGES, seed=st.integers(0, 1000))
def test_every_change_is_followed_by_a_turn_and_turns_of_a_key_never_overlap(
    changes: list[tuple[str, float, bool]], seed: int
) -> None:
    _storm(changes, random.Random(seed))


@in_virtual_time
async def _storm(changes: list[tuple[str, float, bool]], draw: random.Random) -> None:
    queue: KeyedQueue[str] = KeyedQueue(Backoff(first=0.5, limit=4.0), draw)
    working: Counter[str] = Counter()
    last_change: dict[str, float] = {}
    last_begin: dict[str, float] = {}

    async def work() -> None:
        while True:
            key = await queue.get()
            working[key] += 1
            assert working[key] == 1
            last_begin[key] = now()
            await asyncio.sleep(draw.random() * 3.0)
            working[key] -= 1
            queue.done(key, failed=draw.random() < 0.2)

    workers = [asyncio.create_task(work()) for _ in range(3)]
    for key, pause, hurried in changes:
        (queue.hurry if hurried else queue.add)(key)
        last_change[key] = now()
        await asyncio.sleep(pause)
    await asyncio.sleep(600.0)
    for worker in workers:
        worker.cancel()
    ended = await asyncio.gather(*workers, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended
    assert all(last_begin[key] >= changed for key, changed in last_change.items())
    assert len(queue) == 0
