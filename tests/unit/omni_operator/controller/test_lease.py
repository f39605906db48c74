"""The Lease: one operator acts, another takes over when it is gone, and never both at once."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omni_operator.controller.client import Client
from omni_operator.controller.lease import Lease, LeaseLost, LeaseOptions
from tests.support.played_leases import LeaseClient, LeaseServer, Weather
from tests.support.virtual_time import in_virtual_time

OPTIONS = LeaseOptions("omni-system")
FINE: Weather = lambda: (0.0, True)  # noqa: E731


class Process:
    """An operator whose work is to be counted among those that act."""

    def __init__(self, server: LeaseServer, name: str, weather: Weather = FINE) -> None:
        self.weather = weather
        client = cast(Client, LeaseClient(server, lambda: self.weather()))
        self.lease = Lease(client, name, OPTIONS)
        self.acts = asyncio.Event()
        self.task = asyncio.create_task(self.lease.run(self._work))

    async def _work(self) -> None:
        self.acts.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.acts.clear()

    async def stop(self) -> BaseException | None:
        """End it as SIGTERM would."""
        self.task.cancel()
        (ended,) = await asyncio.gather(self.task, return_exceptions=True)
        return ended


def now() -> float:
    return asyncio.get_running_loop().time()


def spec(server: LeaseServer) -> dict[str, Any]:
    (lease,) = server.leases.values()
    return cast("dict[str, Any]", lease["spec"])


async def sleep_long() -> None:
    """Let time pass; a loop in virtual time needs something to wait for."""
    await asyncio.sleep(300.0)


@in_virtual_time
async def test_a_second_operator_waits_for_as_long_as_the_first_renews() -> None:
    server = LeaseServer()
    first, second = Process(server, "first"), Process(server, "second")
    await sleep_long()
    assert (first.acts.is_set(), second.acts.is_set()) == (True, False)
    assert spec(server)["holderIdentity"] == "first"
    await first.stop()
    await second.stop()


@in_virtual_time
async def test_an_operator_that_ends_frees_its_lease_for_the_next() -> None:
    server = LeaseServer()
    first = Process(server, "first")
    await first.acts.wait()
    second = Process(server, "second")
    await asyncio.sleep(60.0)
    await first.stop()
    assert spec(server)["holderIdentity"] == ""
    ended = now()
    await second.acts.wait()
    assert now() - ended <= OPTIONS.retry
    assert spec(server)["leaseTransitions"] == 1
    await second.stop()


@in_virtual_time
async def test_one_that_died_without_a_word_is_followed_after_the_lease_has_run_out() -> None:
    server = LeaseServer()
    first, second = Process(server, "first"), Process(server, "second")
    await first.acts.wait()
    await asyncio.sleep(60.0)
    first.weather = lambda: (1e6, False)
    died = now()
    await second.acts.wait()
    waited = now() - died
    assert OPTIONS.duration - OPTIONS.retry <= waited <= OPTIONS.duration + 2 * OPTIONS.retry
    assert not first.acts.is_set()
    with pytest.raises(LeaseLost):
        await first.task
    await second.stop()


@in_virtual_time
async def test_a_short_fault_of_the_api_server_costs_nothing() -> None:
    server = LeaseServer()
    process = Process(server, "first")
    await process.acts.wait()
    process.weather = lambda: (0.0, False)
    await asyncio.sleep(OPTIONS.renew_deadline - OPTIONS.retry)
    process.weather = FINE
    await sleep_long()
    assert process.acts.is_set()
    await process.stop()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_two_never_act_at_once_whatever_the_network_does(seed: int) -> None:
    _storm(random.Random(seed))


@in_virtual_time
async def _storm(draw: random.Random) -> None:
    server, bad = LeaseServer(), {"first": 0.0, "second": 0.0}

    def weather(name: str) -> Weather:
        def now_and_then() -> tuple[float, bool]:
            if draw.random() < bad[name]:
                return draw.choice((0.0, 1.0, 8.0, 20.0)), draw.random() < 0.3
            return draw.random(), True

        return now_and_then

    def start(name: str) -> Process:
        return Process(server, name, weather(name))

    processes = {name: start(name) for name in bad}
    acted: set[str] = set()
    for _ in range(800):
        await asyncio.sleep(draw.random())
        if draw.random() < 0.05:
            bad[draw.choice(list(bad))] = draw.choice((0.0, 0.5, 1.0))
        acting = [name for name, one in processes.items() if one.acts.is_set()]
        assert len(acting) <= 1
        acted.update(acting)
        for name, one in processes.items():
            if one.task.done():
                with suppress(LeaseLost):
                    one.task.result()
                processes[name] = start(name)
    assert acted
    for one in processes.values():
        await one.stop()
