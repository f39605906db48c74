"""Warm-ups: which replicas must answer them, and what it means for a pipeline and its requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from prometheus_client import generate_latest

from omni_gateway.coordinator import Phase
from omni_gateway.coordinator.events import Submitted
from omni_gateway.coordinator.routes import Routes
from omni_gateway.warm_up import Backoff, WarmUpRunner
from omni_wire.errors import StageFailed
from omni_wire.messages import RequestView
from omni_wire.v1 import gateway_pb2 as pb
from tests.support.coordination import World, speech_topology
from tests.support.fake_groups import FakePipeline

WARM_UPS = {
    "text": RequestView(metadata={"terminals": ["text"]}),
    "speech": RequestView(metadata={"terminals": ["text", "voice"]}),
}
TEXT_ONLY = RequestView(metadata={"output_modalities": ["text"]})
QUICK = Backoff(0.001, 0.002)


def world(warm_ups: Mapping[str, RequestView] = WARM_UPS) -> World:
    return World(topology=replace(speech_topology(), warm_ups=warm_ups))


def warm_up(world: World, name: str, revision: str = "") -> None:
    """Answer a warm-up, as a runner would."""
    view = WARM_UPS[name]
    world.feed(Submitted(name, view, world.now + 60, revision, name))
    record = world.record(name)
    assert record.binding is not None
    for stage in record.expected:
        world.complete(record, stage, record.binding.endpoints[stage].incarnation)
    world.leave(name)


def due(world: World) -> list[tuple[str, str]]:
    return [(one.name, one.revision) for one in world.state.readiness().due]


def test_a_pipeline_without_warm_ups_is_ready_when_its_stages_are() -> None:
    readiness = world({}).everything().state.readiness()
    assert readiness.ready
    assert not readiness.due


def test_a_pipeline_is_ready_once_every_warm_up_was_answered() -> None:
    pipeline = world()
    assert not due(pipeline)
    pipeline.everything()
    assert due(pipeline) == [("text", ""), ("speech", "")]
    assert pipeline.state.readiness().lines() == [
        "warm-up 'text': not answered yet",
        "warm-up 'speech': not answered yet",
    ]

    warm_up(pipeline, "text")
    assert list(pipeline.state.readiness().warm_ups) == ["speech"]
    warm_up(pipeline, "speech")

    assert pipeline.state.readiness().ready
    assert not due(pipeline)


def test_a_warm_up_waits_for_the_groups_on_its_way_alone() -> None:
    pipeline = world()
    pipeline.up("front")
    pipeline.up("thinker")
    assert due(pipeline) == [("text", "")]


def test_a_replica_that_joins_is_warmed_up_and_leaves_the_pipeline_ready() -> None:
    pipeline = world().everything()
    warm_up(pipeline, "text")
    warm_up(pipeline, "speech")

    second = pipeline.up("thinker")

    assert pipeline.state.readiness().ready
    assert due(pipeline) == [("text", ""), ("speech", "")]
    for number in range(4):
        assert pipeline.submit(str(number)).bound_to(pipeline.thinker)
    warm_up(pipeline, "text")
    warm_up(pipeline, "speech")
    assert not due(pipeline)
    assert pipeline.submit("next").bound_to(second)


def test_a_pipeline_whose_only_warm_replica_is_lost_is_ready_after_the_next_has_answered() -> None:
    pipeline = world().everything()
    warm_up(pipeline, "text")
    warm_up(pipeline, "speech")
    pipeline.lose(pipeline.vocoder)
    pipeline.up("vocoder")

    assert due(pipeline) == [("speech", "")]
    assert list(pipeline.state.readiness().warm_ups) == ["speech"]
    warm_up(pipeline, "speech")
    assert pipeline.state.readiness().ready


def test_clients_that_cannot_wait_are_served_by_cold_replicas() -> None:
    pipeline = world().everything()
    assert pipeline.submit().phase is Phase.RUNNING


def test_a_new_revision_takes_requests_once_it_is_warm() -> None:
    pipeline = world().everything("1")
    directory = pipeline.state.directory
    old = {"front": "1", "thinker": "1", "vocoder": "1"}
    directory.set_routes(Routes({"a": old, "b": {**old, "thinker": "2"}}))
    for name in WARM_UPS:
        warm_up(pipeline, name, "a")
    assert not due(pipeline)

    new = pipeline.up("thinker", "2")

    assert due(pipeline) == [("text", "b"), ("speech", "b")]
    assert pipeline.state.readiness().ready
    assert pipeline.submit("before").bound_to(pipeline.thinker)
    for name in WARM_UPS:
        warm_up(pipeline, name, "b")
    assert pipeline.submit("after").bound_to(new)


@asynccontextmanager
async def warming(warm_ups: Mapping[str, RequestView]) -> AsyncIterator[FakePipeline]:
    """A pipeline of fake groups, with its warm-ups on their way."""
    pipeline = FakePipeline(warm_ups=warm_ups)
    runner = asyncio.create_task(WarmUpRunner(pipeline.coordinator, QUICK).run())
    try:
        yield pipeline
    finally:
        runner.cancel()
        await asyncio.wait([runner])


async def test_a_warm_up_that_fails_is_tried_again_and_says_why() -> None:
    async with warming({"text": TEXT_ONLY}) as pipeline:
        coordinator, writer = pipeline.coordinator, pipeline.writer
        writer.fail(await pipeline.submitted(), "writer", StageFailed("no kernel").info)
        again = await pipeline.submitted()
        assert coordinator.readiness.warm_ups == {"text": "STAGE_FAILED: no kernel"}

        pipeline.text.complete(again, "text")
        assert coordinator.readiness.ready
    assert pipeline.clean()


async def test_a_warm_up_survives_the_loss_of_a_replica() -> None:
    async with warming({"text": TEXT_ONLY}) as pipeline:
        await pipeline.submitted()
        pipeline.text.die()
        second = pipeline.group("text").start()

        second.complete(await pipeline.submitted(), "text")
        assert pipeline.coordinator.readiness.ready


async def test_replicas_are_told_as_ready_once_they_have_answered() -> None:
    async with warming({"text": TEXT_ONLY}) as pipeline:
        key = await pipeline.submitted()
        assert _reasons(pipeline) == {"warm-up 'text': not answered yet"}
        # One without company of its revision cannot be tried; that is not held against it.
        lone = pipeline.group("speaker", "next").start()
        assert lone.incarnation in _ready(pipeline)

        pipeline.text.complete(key, "text")
        assert _reasons(pipeline) == {""}


async def test_warm_ups_are_counted_apart_from_what_clients_ask() -> None:
    async with warming({"text": TEXT_ONLY}) as pipeline:
        pipeline.text.complete(await pipeline.submitted(), "text")

        counted = generate_latest(pipeline.coordinator.metrics.registry).decode()
        answered = 'omni_gateway_warm_ups_total{name="text",phase="completed",reason=""} 1.0'
        assert answered in counted
        assert "omni_gateway_requests_submitted_total 0.0" in counted
        assert "omni_gateway_requests_finished_total{" not in counted
        assert not list(pipeline.coordinator.timelines.latest())


async def test_a_warm_up_that_is_given_up_counts_as_no_request_of_a_client() -> None:
    async with warming({"text": TEXT_ONLY}) as pipeline:
        await pipeline.submitted()

    counted = generate_latest(pipeline.coordinator.metrics.registry).decode()
    assert 'phase="aborted",reason="REQUEST_ABORTED"} 1.0' in counted
    assert "omni_gateway_requests_finished_total{" not in counted
    assert pipeline.clean()


async def test_a_gateway_without_warm_ups_sends_nothing() -> None:
    async with warming({}) as pipeline:
        await asyncio.sleep(0)
        assert pipeline.coordinator.readiness.ready
        assert pipeline.writer.submits.empty()


def _instances(pipeline: FakePipeline) -> list[pb.Instance]:
    told = pipeline.view.describe(pipeline.coordinator, with_config=False)
    return [one for stage in told.stages for one in stage.instances]


def _reasons(pipeline: FakePipeline) -> set[str]:
    """What is said of the replicas that a text crosses."""
    crossed = {pipeline.writer.incarnation, pipeline.text.incarnation}
    return {one.reason for one in _instances(pipeline) if one.incarnation in crossed}


def _ready(pipeline: FakePipeline) -> set[int]:
    return {one.incarnation for one in _instances(pipeline) if one.ready}
