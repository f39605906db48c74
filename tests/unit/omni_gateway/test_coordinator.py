"""The Coordinator with a clock, links and readers: what `submit` returns and what happens to it."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest
from prometheus_client import generate_latest

from omni_gateway.coordinator import CoordinatorOptions, Phase, Readiness
from omni_wire.errors import (
    DeadlineExceeded,
    Draining,
    FrameTooLarge,
    InstanceLost,
    InvalidRequest,
    RequestAborted,
    StageFailed,
    Unavailable,
)
from omni_wire.messages import RequestView
from omni_wire.tensor import Tensor
from tests.support.fake_groups import FakePipeline
from tests.support.patience import PATIENT_SECONDS

TEXT_ONLY = RequestView({}, {}, {"output_modalities": ["text"]})
SPEECH = RequestView()


@pytest.fixture
async def pipeline() -> FakePipeline:
    return FakePipeline()


async def test_a_reader_gets_every_chunk_and_then_the_result(pipeline: FakePipeline) -> None:
    async with pipeline.coordinator.submit(TEXT_ONLY) as handle:
        pipeline.text.output([handle.key], "text", [1])
        pipeline.text.output([handle.key], "text", [2])
        pipeline.text.complete(handle.key, "text", {"count": 2})

        numbers = [_number(output.columns["number"]) async for output in handle]
        assert numbers == [1, 2]
        assert await handle.result() == {"count": 2}
        assert pipeline.text.unreleased == 0
    assert pipeline.clean()


async def test_rows_of_one_frame_reach_their_own_readers(pipeline: FakePipeline) -> None:
    handles = [pipeline.coordinator.submit(TEXT_ONLY) for _ in range(3)]
    keys = [handle.key for handle in handles]

    pipeline.text.output(keys, "text", [10, 11, 12])

    outputs = [await anext(handle) for handle in handles]
    assert [_number(output.columns["number"]) for output in outputs] == [10, 11, 12]
    for handle in handles:
        handle.leave()
    assert pipeline.clean()


async def test_credit_returns_when_the_reader_takes_a_chunk(pipeline: FakePipeline) -> None:
    slow, quick = (pipeline.coordinator.submit(TEXT_ONLY) for _ in range(2))
    for _ in range(5):
        pipeline.text.output([slow.key, quick.key], "text", [0, 0])

    for _ in range(5):
        await anext(quick)
    assert pipeline.text.unreleased == 5

    slow.leave()
    assert pipeline.text.unreleased == 0


async def test_a_waiting_reader_is_woken_by_a_failure(pipeline: FakePipeline) -> None:
    async with pipeline.coordinator.submit(SPEECH) as handle:
        reading = asyncio.ensure_future(anext(handle))
        await asyncio.sleep(0)

        pipeline.writer.fail(handle.key, "writer", StageFailed("out of numbers").info)

        with pytest.raises(StageFailed, match="out of numbers"):
            await reading


async def test_the_result_can_be_awaited_without_reading_chunks(pipeline: FakePipeline) -> None:
    async with pipeline.coordinator.submit(SPEECH) as handle:
        waiting = asyncio.ensure_future(handle.result())
        await asyncio.sleep(0)
        pipeline.text.output([handle.key], "text", [1])
        pipeline.text.complete(handle.key, "text", "t")
        pipeline.speaker.complete(handle.key, "sound", "s")

        assert await waiting == {"text": "t", "sound": "s"}
        assert pipeline.text.unreleased == 0


async def test_an_abort_returns_once_every_replica_confirmed(pipeline: FakePipeline) -> None:
    groups = [pipeline.writer, pipeline.text, pipeline.speaker]
    for group in groups:
        group.acknowledges = False
    handle = pipeline.coordinator.submit(SPEECH, request_id="mine")
    aborts = [asyncio.ensure_future(pipeline.coordinator.abort("mine")) for _ in range(3)]
    await asyncio.sleep(0)
    assert handle.phase is Phase.ABORTED
    assert [len(group.aborts) for group in groups] == [1, 1, 1]

    for group in groups:
        assert not any(task.done() for task in aborts)
        group.acknowledges = True
        group.post(group.aborts[0])
    await asyncio.gather(*aborts)

    with pytest.raises(RequestAborted):
        await handle.result()
    handle.leave()
    assert pipeline.clean()


async def test_an_abort_of_an_unknown_request_returns_at_once(pipeline: FakePipeline) -> None:
    await pipeline.coordinator.abort("nobody")


async def test_leaving_the_context_early_aborts_the_request(pipeline: FakePipeline) -> None:
    async with pipeline.coordinator.submit(SPEECH):
        pass

    assert len(pipeline.writer.aborts) == 1
    assert pipeline.clean()


async def test_a_cancelled_reader_leaves_nothing_behind(pipeline: FakePipeline) -> None:
    async def read() -> None:
        async with pipeline.coordinator.submit(SPEECH) as handle:
            await handle.result()

    task = asyncio.ensure_future(read())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert len(pipeline.speaker.aborts) == 1
    assert pipeline.clean()


async def test_a_deadline_ends_a_request_nobody_answers(pipeline: FakePipeline) -> None:
    async with pipeline.coordinator.submit(SPEECH, timeout_seconds=0.01) as handle:
        with pytest.raises(DeadlineExceeded):
            await handle.result()

    assert len(pipeline.writer.aborts) == 1


async def test_a_request_that_cannot_be_sent_is_refused_and_forgotten(
    pipeline: FakePipeline,
) -> None:
    pipeline.writer.refuses = FrameTooLarge("9 GiB")

    with pytest.raises(FrameTooLarge):
        pipeline.coordinator.submit(SPEECH)

    assert pipeline.clean()


@pytest.mark.parametrize(
    ("request_id", "seconds"), [("", 1.0), ("x" * 129, 1.0), ("a\nb", 1.0), ("ok", 0.0)]
)
async def test_ids_and_timeouts_that_make_no_sense_are_refused(
    pipeline: FakePipeline, request_id: str, seconds: float
) -> None:
    with pytest.raises(InvalidRequest):
        pipeline.coordinator.submit(SPEECH, request_id=request_id, timeout_seconds=seconds)


async def test_only_requests_on_a_dead_replica_fail_and_new_ones_go_elsewhere() -> None:
    pipeline = FakePipeline()
    second = pipeline.group("speaker@r1").start()
    handles = [pipeline.coordinator.submit(SPEECH) for _ in range(4)]
    changes: list[Readiness] = []
    pipeline.coordinator.watch_readiness(changes.append)

    second.die()

    failed = [handle for handle in handles if handle.phase is Phase.FAILED]
    assert len(failed) == 2
    for handle in failed:
        with pytest.raises(InstanceLost):
            await handle.result()
    assert second.closed
    assert all(change.ready for change in changes)
    after = pipeline.coordinator.submit(SPEECH)
    assert after.phase is Phase.RUNNING

    pipeline.speaker.die()
    assert not changes[-1].ready
    assert changes[-1].reasons.keys() == {"speaker", "sound"}
    pipeline.group("speaker").start()
    assert changes[-1].ready


async def test_a_gateway_that_stood_still_gives_nobody_up_for_it() -> None:
    pipeline = FakePipeline(CoordinatorOptions(lease_seconds=0.2))
    unready = asyncio.Event()
    pipeline.coordinator.watch_readiness(lambda now: None if now.ready else unready.set())

    time.sleep(0.5)  # noqa: ASYNC251  # a machine too busy to run this process
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not unready.is_set()

    async with asyncio.timeout(PATIENT_SECONDS):
        await unready.wait()


async def test_a_request_waits_for_a_replica_only_so_long() -> None:
    pipeline = FakePipeline(CoordinatorOptions(route_wait_seconds=0.01))
    pipeline.speaker.die()

    async with pipeline.coordinator.submit(SPEECH) as handle:
        with pytest.raises(Unavailable, match="speaker"):
            await handle.result()


async def test_a_drain_waits_for_what_is_in_flight(pipeline: FakePipeline) -> None:
    handle = pipeline.coordinator.submit(TEXT_ONLY)
    draining = asyncio.ensure_future(pipeline.coordinator.drain(30))
    await asyncio.sleep(0)
    with pytest.raises(Draining):
        pipeline.coordinator.submit(SPEECH)
    assert not draining.done()

    pipeline.text.complete(handle.key, "text")
    handle.leave()
    await draining


async def test_a_drain_that_takes_too_long_ends_the_rest(pipeline: FakePipeline) -> None:
    handle = pipeline.coordinator.submit(SPEECH)

    await pipeline.coordinator.drain(0.01)

    with pytest.raises(Draining):
        await handle.result()
    assert len(pipeline.writer.aborts) == 1


async def test_a_draining_replica_is_let_go_once_nothing_is_bound_to_it(
    pipeline: FakePipeline,
) -> None:
    bound = pipeline.coordinator.submit(SPEECH)
    second = pipeline.group("speaker").start()

    pipeline.speaker.drain()
    assert pipeline.speaker.let_go == 0
    unbound = pipeline.coordinator.submit(SPEECH)
    second.drain()

    for group, handle in ((pipeline.speaker, bound), (second, unbound)):
        pipeline.text.complete(handle.key, "text")
        assert group.let_go == 0
        group.complete(handle.key, "sound")
        assert group.let_go == 1
        handle.leave()
    assert pipeline.clean()
    assert (pipeline.speaker.let_go, second.let_go, pipeline.text.let_go) == (1, 1, 0)


async def test_two_coordinators_in_one_process_share_nothing(pipeline: FakePipeline) -> None:
    other = FakePipeline()

    pipeline.coordinator.submit(SPEECH, request_id="same")
    other.coordinator.submit(SPEECH, request_id="same")

    assert pipeline.coordinator.gateway != other.coordinator.gateway
    assert pipeline.coordinator.state.requests.admission.in_flight == 1
    assert b"requests_in_flight 1.0" in _exposition(other)


def _exposition(pipeline: FakePipeline) -> bytes:
    return generate_latest(pipeline.coordinator.metrics.registry)


def _number(column: object) -> int:
    assert isinstance(column, Tensor)
    return int(np.asarray(column.numpy()))
