"""Requests through a gateway whose groups speak the control protocol and do what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import grpc
import numpy as np
import pytest

from omni_gateway.coordinator import CoordinatorOptions
from omni_wire.edge import EdgeOptions
from omni_wire.errors import (
    ConfigMismatch,
    RequestExists,
    ServiceError,
    StageFailed,
    StaleIncarnation,
    VersionMismatch,
)
from omni_wire.identity import RequestKey
from omni_wire.messages import Ready
from omni_wire.status import error_of
from omni_wire.tensor import Tensor
from omni_wire.trees import from_proto
from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.wire_version import WIRE_VERSION, Versions
from tests.support.links import Faults, FaultyLink
from tests.support.patience import PATIENT_SECONDS
from tests.support.wire_groups import WireCluster, WireGroup, wire_cluster

Call: TypeAlias = "grpc.aio.UnaryStreamCall[pb.GenerateRequest, pb.GenerateEvent]"
OPTIONS = CoordinatorOptions(lease_seconds=PATIENT_SECONDS, route_wait_seconds=PATIENT_SECONDS)
TEXT = ["text"]
FROM_THE_FUTURE = EdgeOptions(versions=Versions(WIRE_VERSION + 2, WIRE_VERSION + 1))


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A gateway with one replica of each group."""

    cluster: WireCluster
    writer: WireGroup
    text: WireGroup
    speaker: WireGroup

    async def begun(self, *, modalities: list[str] | None = None) -> tuple[Call, RequestKey]:
        """Start a stream; returns it and its key once the entry stage has the request."""
        call = self.cluster.stub.GenerateStream(pb.GenerateRequest(modalities=modalities))
        async with asyncio.timeout(PATIENT_SECONDS):
            submit = await self.writer.submits.get()
            await call.read()
        return call, submit.payload.key


@pytest.fixture
def options() -> CoordinatorOptions:
    """What the gateway tolerates: nobody is lost to it because this machine is busy."""
    return OPTIONS


@pytest.fixture
async def pipeline(options: CoordinatorOptions) -> AsyncIterator[Pipeline]:
    async with wire_cluster(options) as cluster:
        groups = [await cluster.group(name) for name in ("writer", "text", "speaker")]
        yield Pipeline(cluster, *groups)


@pytest.mark.parametrize("read", range(4))
async def test_a_client_may_leave_after_any_number_of_chunks(pipeline: Pipeline, read: int) -> None:
    call, key = await pipeline.begun()
    for number in range(3):
        pipeline.text.output([key], "text", {"number": [number]})
    for _ in range(read):
        await call.read()

    call.cancel()

    for group in (pipeline.writer, pipeline.text, pipeline.speaker):
        async with asyncio.timeout(PATIENT_SECONDS):
            assert (await group.aborts.get()).key == key
    pipeline.text.output([key], "text", {"number": [99]})
    pipeline.text.complete(key, "text")
    assert await pipeline.cluster.settled()
    await pipeline.text.link.drain()


async def test_an_id_is_refused_until_every_group_let_go_of_it(pipeline: Pipeline) -> None:
    pipeline.text.confirms = False
    stub = pipeline.cluster.stub
    first = stub.GenerateStream(pb.GenerateRequest(request_id="same"))
    await first.read()
    first.cancel()
    async with asyncio.timeout(PATIENT_SECONDS):
        abort = await pipeline.text.aborts.get()
        await pipeline.speaker.aborts.get()

    error = await _error(stub.GenerateStream(pb.GenerateRequest(request_id="same")))
    assert isinstance(error, RequestExists)

    pipeline.text.confirm(abort.key)
    await pipeline.text.link.drain()
    again = stub.GenerateStream(pb.GenerateRequest(request_id="same"))
    assert isinstance(await again.read(), pb.GenerateEvent)
    again.cancel()


async def test_only_the_first_result_of_an_expected_terminal_counts(pipeline: Pipeline) -> None:
    call, key = await pipeline.begun(modalities=TEXT)

    pipeline.speaker.complete(key, "sound", "not expected")
    await pipeline.speaker.link.drain()
    pipeline.text.complete(key, "text", "first")
    pipeline.text.complete(key, "text", "second")

    assert await _results(call) == {"text": "first"}
    assert await pipeline.cluster.settled()


async def test_a_failure_after_one_terminals_success_fails_the_request(pipeline: Pipeline) -> None:
    call, key = await pipeline.begun()
    pipeline.text.complete(key, "text", "done")
    await pipeline.text.link.drain()

    pipeline.speaker.fail(key, "speaker", StageFailed("no voice", stage="speaker").info)

    error = await _error(call)
    assert isinstance(error, StageFailed)
    assert error.stage == "speaker"
    assert await pipeline.cluster.settled()


async def test_a_replaced_process_takes_only_its_own_requests_with_it(pipeline: Pipeline) -> None:
    second = await pipeline.cluster.group("speaker@r1", address="unix:/second")
    begun = [await pipeline.begun() for _ in range(4)]
    directory = pipeline.cluster.coordinator.state.directory
    replica = directory.get(second.incarnation)
    assert replica is not None
    assert replica.outstanding == 2

    newer = await pipeline.cluster.group("speaker@r1", address="unix:/second")

    for _, key in begun:
        pipeline.text.complete(key, "text", "t")
        for group in (pipeline.speaker, newer):
            group.complete(key, "sound", "s")
    outcomes = [await _outcome(call) for call, _ in begun]
    assert outcomes.count("ok") == 2
    assert outcomes.count("INSTANCE_LOST") == 2
    assert pipeline.cluster.coordinator.readiness.ready
    async with asyncio.timeout(PATIENT_SECONDS):
        assert isinstance(await second.lost, StaleIncarnation)
    assert await pipeline.cluster.settled()


async def test_readiness_ends_with_the_last_replica_and_comes_back(pipeline: Pipeline) -> None:
    cluster = pipeline.cluster
    second = cluster.unstarted("speaker@r1")
    async with second.running():
        await cluster.until_ready(second)
        pipeline.speaker.link.close()
        await cluster.until(lambda: cluster.coordinator.readiness.replicas["sound"] == 1)
        assert cluster.coordinator.readiness.ready
    await cluster.until(lambda: not cluster.coordinator.readiness.ready)
    assert cluster.coordinator.readiness.reasons.keys() == {"speaker", "sound"}

    waiting = cluster.stub.GenerateStream(pb.GenerateRequest())
    await waiting.read()
    third = await cluster.group("speaker@r2")
    async with asyncio.timeout(PATIENT_SECONDS):
        key = (await pipeline.writer.submits.get()).payload.key
    pipeline.text.complete(key, "text", "t")
    third.complete(key, "sound", "s")
    assert await _results(waiting) == {"text": "t", "sound": "s"}


@pytest.mark.parametrize("options", [replace(OPTIONS, lease_seconds=2.0)], ids=["short lease"])
async def test_a_silent_process_is_lost_and_may_come_back(pipeline: Pipeline) -> None:
    silent = await pipeline.cluster.group("text", address="unix:/silent")
    begun = [await pipeline.begun() for _ in range(2)]

    silent.beats = False
    await pipeline.cluster.until(
        lambda: pipeline.cluster.coordinator.readiness.replicas["text"] == 1
    )

    async with asyncio.timeout(PATIENT_SECONDS):
        assert isinstance(await silent.lost, StaleIncarnation)
    for _, key in begun:
        pipeline.text.complete(key, "text", "t")
        pipeline.speaker.complete(key, "sound", "s")
    assert sorted([await _outcome(call) for call, _ in begun]) == ["INSTANCE_LOST", "ok"]
    again = await pipeline.cluster.group(
        "text", address="unix:/silent", incarnation=silent.incarnation
    )
    assert again.welcomed.is_set()


async def test_a_draining_group_finishes_what_it_has(pipeline: Pipeline) -> None:
    old, old_key = await pipeline.begun(modalities=TEXT)
    second = await pipeline.cluster.group("text", address="unix:/second")
    pipeline.text.drain()
    await pipeline.cluster.until(
        lambda: pipeline.cluster.coordinator.readiness.replicas["text"] == 1
    )

    for _ in range(3):
        new, new_key = await pipeline.begun(modalities=TEXT)
        second.complete(new_key, "text", "new")
        assert await _results(new) == {"text": "new"}
    pipeline.text.complete(old_key, "text", "old")
    assert await _results(old) == {"text": "old"}

    pipeline.text.link.post(Ready("text", True))
    await pipeline.cluster.until_ready(pipeline.text)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(Faults(cut_after=(5,)), id="cut after arrival"),
        pytest.param(Faults(cut_before=(5, 9)), id="cut before sending, twice"),
        pytest.param(Faults(cut_after=(4, 6), lose_acknowledgements=True), id="no acknowledgement"),
    ],
)
async def test_a_cut_stream_delivers_each_chunk_once(faults: Faults) -> None:
    async with wire_cluster(OPTIONS) as cluster:
        link = FaultyLink(faults)
        groups = [
            await cluster.group("writer"),
            await cluster.group("text", wrap=link.wrap),
            await cluster.group("speaker"),
        ]
        pipeline = Pipeline(cluster, *groups)
        call, key = await pipeline.begun(modalities=TEXT)

        for number in range(20):
            pipeline.text.output([key], "text", {"number": [number]})
        pipeline.text.complete(key, "text", "end")

        chunks = [await _number(call) for _ in range(20)]
        assert chunks == list(range(20))
        assert await _results(call) == {"text": "end"}
        assert link.streams > 1


async def test_a_stalled_reader_holds_back_its_own_request_alone(pipeline: Pipeline) -> None:
    stalled, stalled_key = await pipeline.begun(modalities=TEXT)
    quick, quick_key = await pipeline.begun(modalities=TEXT)
    wide = {"number": np.zeros((2, 8_000), np.int64)}
    backlog = pipeline.cluster.coordinator.state.requests.backlog

    for number in range(250):
        pipeline.text.output([stalled_key, quick_key], "text", wide)
        event = await quick.read()
        assert isinstance(event, pb.GenerateEvent)
        assert event.output.chunk_id == number
        assert backlog.size_bytes < 2_500_000

    assert pipeline.text.stalled == {stalled_key}
    stalled.cancel()
    quick.cancel()
    assert await pipeline.cluster.settled()


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        pytest.param({"config_hash": "0" * 16}, ConfigMismatch, id="another configuration"),
        pytest.param({"instances": ("text", "sound")}, ConfigMismatch, id="other stages"),
        pytest.param({"options": FROM_THE_FUTURE}, VersionMismatch, id="another wire version"),
    ],
)
async def test_a_group_that_does_not_belong_here_is_told_why(
    pipeline: Pipeline, settings: dict[str, object], refusal: type[ServiceError]
) -> None:
    stranger = pipeline.cluster.unstarted("text", **settings)

    await stranger.link.run()

    assert isinstance(await stranger.lost, refusal)


async def test_groups_serve_two_gateways_at_once() -> None:
    async with wire_cluster(OPTIONS) as one, wire_cluster(OPTIONS) as two:
        for cluster in (one, two):
            groups = [await cluster.group(name) for name in ("writer", "text", "speaker")]
            pipeline = Pipeline(cluster, *groups)
            call, key = await pipeline.begun(modalities=TEXT)
            assert key.gateway == cluster.coordinator.gateway
            pipeline.text.complete(key, "text", "t")
            assert await _results(call) == {"text": "t"}


async def _number(call: Call) -> int:
    event = await call.read()
    assert isinstance(event, pb.GenerateEvent)
    data = from_proto(event.output.data)
    assert isinstance(data, dict)
    column = data["number"]
    assert isinstance(column, Tensor)
    return int(column.numpy())


async def _results(call: Call) -> dict[str, object]:
    """Read a stream to its end; returns the result of each terminal."""
    results: dict[str, object] = {}
    async with asyncio.timeout(PATIENT_SECONDS):
        while isinstance(event := await call.read(), pb.GenerateEvent):
            if event.output.final:
                results[event.output.stage] = from_proto(event.output.data)
    return results


async def _outcome(call: Call) -> str:
    try:
        await _results(call)
    except grpc.aio.AioRpcError as error:
        return error_of(error).info.reason
    return "ok"


async def _error(call: Call) -> ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await _results(call)
    return error_of(raised.value)
