"""Two ranks of a toy engine over gloo give what one rank gives, and change state together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from omni_runtime.scheduler import NewRequest, Result
from omni_wire.messages import RequestView
from tests.support.group_processes import Deployment, deployment
from tests.support.schedulers import DrivenScheduler
from tests.support.stage_calls import Call
from tests.support.stage_events import key, payload

stages: Any = pytest.importorskip("examples.tensor_parallel.stages")

pytestmark = pytest.mark.slow


@pytest.fixture
async def engine() -> AsyncIterator[Deployment]:
    async with deployment("tensor_parallel") as made:
        await made.start("engine_tp1", "engine_tp0")
        yield made


def submit(made: Deployment, prompt: int, count: int, deadline: float | None = None) -> Call:
    params = {"prompt": prompt, "max_tokens": count}
    return made.gateway.submit(f"p{prompt}", deadline, params=params)


def tokens_of_one_rank(prompt: int, count: int) -> list[int]:
    """Return what the undivided engine generates."""
    driven = DrivenScheduler(stages.make_engine())
    request = RequestView(params={"prompt": prompt, "max_tokens": count})
    whole = payload(f"p{prompt}")
    driven.put(NewRequest(type(whole)(key(f"p{prompt}"), whole.source, None, request)))
    driven.finish()
    (result,) = driven.outbox.of(Result)
    tokens: list[int] = result.data["tokens"]  # type: ignore[index, call-overload, assignment]
    return tokens


async def test_two_ranks_are_as_one_through_aborts_and_deadlines(engine: Deployment) -> None:
    gateway = engine.gateway
    leaving = submit(engine, 90, 1_000_000)
    expiring = submit(engine, 91, 1_000_000, deadline=time.monotonic() + 1.0)
    calls = [submit(engine, prompt, 40 + prompt) for prompt in range(8)]
    await gateway.until(lambda: bool(leaving.rows.get("engine")), "the first token")
    await gateway.abort(leaving)
    await gateway.end(*calls, expiring)
    for prompt, call in enumerate(calls):
        assert call.error is None
        assert call.rows["engine"] == tokens_of_one_rank(prompt, 40 + prompt)
        assert call.results["engine"] == {"tokens": call.rows["engine"]}
    assert expiring.error is not None
    assert expiring.error.reason == "DEADLINE_EXCEEDED"
    # The ranks compare notes before each step, so one that had missed any of this would have
    # failed.
    last = submit(engine, 50, 5)
    await gateway.end(last)
    assert last.error is None
    assert await engine.stop("engine_tp0") == 0
    assert await engine.processes["engine_tp1"].wait() == 0


async def test_a_lost_rank_ends_the_stage(engine: Deployment) -> None:
    call = submit(engine, 1, 1_000_000)
    await engine.gateway.until(lambda: bool(call.rows.get("engine")), "the first token")
    engine.processes["engine_tp1"].kill()
    await engine.gateway.end(call)
    assert call.error is not None
    assert await engine.processes["engine_tp0"].wait() == 1


async def test_a_rank_does_not_outlive_rank_0(engine: Deployment) -> None:
    engine.processes["engine_tp0"].kill()
    assert await engine.processes["engine_tp1"].wait() == 1


async def test_a_rank_that_waits_in_vain_can_be_stopped() -> None:
    async with deployment("tensor_parallel") as made:
        await made.start("engine_tp1")
        listening = Path(made.runtime.endpoints.addresses["engine_tp1"].removeprefix("unix:"))
        async with asyncio.timeout(60):
            while not listening.exists():  # noqa: ASYNC110, ASYNC240 - nobody else knows
                await asyncio.sleep(0.02)
        assert await made.stop("engine_tp1") == 0
