"""The gRPC API over a real connection, with groups that do what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeAlias

import grpc
import numpy as np
import pytest
from google.protobuf.duration_pb2 import Duration

from omni_gateway.coordinator import CoordinatorOptions
from omni_wire.errors import (
    DeadlineExceeded,
    InstanceLost,
    InvalidRequest,
    QueueFull,
    RequestExists,
    ServiceError,
    StageFailed,
)
from omni_wire.status import error_of
from omni_wire.tensor import Tensor
from omni_wire.trees import from_proto, to_proto
from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.v1 import gateway_pb2_grpc as pb_grpc
from omni_wire.v1 import tensor_pb2
from tests.support.fake_groups import FakePipeline
from tests.support.patience import PATIENT_SECONDS

BROKEN_TREE = tensor_pb2.Tree(tensor=tensor_pb2.Tensor(shape=[5]))
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"
Stub: TypeAlias = "pb_grpc.GatewayServiceAsyncStub"


@pytest.fixture
async def pipeline() -> FakePipeline:
    return FakePipeline(CoordinatorOptions(max_in_flight=2))


@pytest.fixture
async def stub(pipeline: FakePipeline) -> AsyncIterator[Stub]:
    async with pipeline.serve() as stub:
        yield stub


async def test_what_was_made_before_a_failure_comes_before_its_error(
    pipeline: FakePipeline, stub: Stub
) -> None:
    call = stub.GenerateStream(pb.GenerateRequest())
    key = await pipeline.submitted()
    pipeline.text.output([key], "text", [1])
    pipeline.text.output([key], "text", [2])
    pipeline.writer.fail(key, "writer", StageFailed("out of numbers").info)

    received: list[str | None] = []

    async def read() -> None:
        async for event in call:
            received.append(event.WhichOneof("event"))

    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await read()
    assert received == ["started", "output", "output"]
    assert isinstance(error_of(raised.value), StageFailed)


async def test_inputs_params_and_modalities_reach_the_entry_stage(
    pipeline: FakePipeline, stub: Stub
) -> None:
    request = pb.GenerateRequest(
        request_id="mine",
        model="numbers",
        inputs={"samples": to_proto(np.arange(3, dtype=np.float32))},
        params={"start": to_proto(5)},
        modalities=["text"],
        labels={"user": "u1"},
    )
    call = stub.Generate(request, metadata=(("traceparent", TRACEPARENT),))
    answer = asyncio.ensure_future(_awaited(call))
    async with asyncio.timeout(PATIENT_SECONDS):
        submit = await pipeline.writer.submits.get()

    view = submit.payload.request
    assert view is not None
    samples = view.inputs["samples"]
    assert isinstance(samples, Tensor)
    assert samples.numpy().tolist() == [0.0, 1.0, 2.0]
    assert view.params == {"start": 5}
    assert view.metadata["output_modalities"] == ["text"]
    assert view.metadata["labels"] == {"user": "u1"}
    trace = view.metadata["trace_context"]
    assert isinstance(trace, dict)
    assert TRACE_ID in trace["traceparent"]

    pipeline.text.complete(submit.payload.key, "text", {"count": 3})
    response = await answer
    assert response.request_id == "mine"
    assert {name: from_proto(tree) for name, tree in response.outputs.items()} == {
        "text": {"count": 3}
    }
    assert pipeline.clean()


async def test_a_stream_gives_chunks_then_results_then_the_end(
    pipeline: FakePipeline, stub: Stub
) -> None:
    call = stub.GenerateStream(pb.GenerateRequest())
    key = await pipeline.submitted()
    pipeline.text.output([key], "text", [7])
    pipeline.speaker.output([key], "sound", [8], "audio")
    pipeline.speaker.complete(key, "sound", {"chunks": 1})
    pipeline.text.complete(key, "text", {"count": 1})

    events = [event async for event in call]

    assert [event.WhichOneof("event") for event in events] == [
        "started",
        *["output"] * 4,
        "finished",
    ]
    chunks = [event.output for event in events if event.HasField("output")]
    assert [(one.stage, one.modality, one.chunk_id, one.final) for one in chunks] == [
        ("text", "text", 0, False),
        ("sound", "audio", 0, False),
        ("text", "", 0, True),
        ("sound", "", 0, True),
    ]
    assert {event.request_id for event in events} == {key.request_id}
    assert pipeline.clean()


async def test_a_client_that_cancels_stops_the_stages(pipeline: FakePipeline, stub: Stub) -> None:
    call = stub.GenerateStream(pb.GenerateRequest())
    key = await pipeline.submitted()
    pipeline.text.output([key], "text", [7])
    await call.read()

    call.cancel()

    assert await pipeline.settled()
    assert len(pipeline.writer.aborts) == 1


async def test_a_client_that_vanishes_stops_the_stages(pipeline: FakePipeline) -> None:
    async with pipeline.serve() as stub:
        call = stub.GenerateStream(pb.GenerateRequest())
        await pipeline.submitted()
        assert await call.read()

    assert await pipeline.settled()
    assert len(pipeline.writer.aborts) == 1


async def test_the_deadline_of_the_call_is_the_requests(pipeline: FakePipeline, stub: Stub) -> None:
    call = stub.Generate(pb.GenerateRequest(), timeout=30)
    answer = asyncio.ensure_future(_awaited(call))
    async with asyncio.timeout(PATIENT_SECONDS):
        submit = await pipeline.writer.submits.get()

    assert submit.payload.deadline is not None
    # gRPC rounds a timeout up before it sends it.
    assert 0 < submit.payload.deadline - asyncio.get_running_loop().time() < 31
    answer.cancel()


async def test_the_requests_own_timeout_holds_when_it_is_shorter(
    pipeline: FakePipeline, stub: Stub
) -> None:
    request = pb.GenerateRequest(timeout=Duration(nanos=10_000_000))

    error = await _error(stub.Generate(request, timeout=30))

    assert isinstance(error, DeadlineExceeded)


@pytest.mark.parametrize(
    ("request_message", "field"),
    [
        (pb.GenerateRequest(messages=[pb.Message(role="user")]), "messages"),
        (pb.GenerateRequest(choices=2), "choices"),
        (pb.GenerateRequest(model="other"), "model"),
        (pb.GenerateRequest(request_id="x" * 1000), "request_id"),
        (pb.GenerateRequest(timeout=Duration(seconds=-1)), "timeout"),
        (pb.GenerateRequest(inputs={"a": BROKEN_TREE}), "inputs"),
    ],
)
async def test_what_is_not_served_is_refused_by_name(
    stub: Stub, request_message: pb.GenerateRequest, field: str
) -> None:
    error = await _error(stub.Generate(request_message))

    assert isinstance(error, InvalidRequest)
    assert error.details["field"] == field


async def test_messages_that_say_nothing_are_no_reason_to_refuse(
    pipeline: FakePipeline, stub: Stub
) -> None:
    empty = pb.GenerateRequest(sampling=pb.SamplingParams(), video=pb.VideoParams())
    call = stub.GenerateStream(empty)

    await pipeline.submitted()
    call.cancel()


async def test_a_full_gateway_says_when_to_try_again(pipeline: FakePipeline, stub: Stub) -> None:
    calls = [stub.GenerateStream(pb.GenerateRequest()) for _ in range(2)]
    for call in calls:
        await call.read()

    error = await _error(stub.Generate(pb.GenerateRequest()))

    assert isinstance(error, QueueFull)
    assert error.retry_after > 0
    for call in calls:
        call.cancel()


async def test_an_id_in_use_is_refused(pipeline: FakePipeline, stub: Stub) -> None:
    first = stub.GenerateStream(pb.GenerateRequest(request_id="same"))
    await first.read()

    assert isinstance(
        await _error(stub.Generate(pb.GenerateRequest(request_id="same"))), RequestExists
    )
    first.cancel()


@pytest.mark.parametrize("lost", [False, True])
async def test_failures_keep_their_reason_on_the_way_to_the_client(
    pipeline: FakePipeline, stub: Stub, lost: bool
) -> None:
    call = stub.GenerateStream(pb.GenerateRequest())
    key = await pipeline.submitted()
    await call.read()

    if lost:
        pipeline.speaker.die()
    else:
        pipeline.writer.fail(key, "writer", StageFailed("no", stage="writer").info)

    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await _read_all(call)
    error = error_of(raised.value)
    assert isinstance(error, InstanceLost if lost else StageFailed)
    assert error.stage == ("speaker" if lost else "writer")
    assert error.info.retryable is lost


async def test_the_pipeline_is_described(pipeline: FakePipeline, stub: Stub) -> None:
    pipeline.group("speaker@r1", revision="2").start(ready=False)

    answer = await stub.GetPipeline(pb.GetPipelineRequest(config=True))

    assert (answer.name, answer.model, answer.ready) == ("numbers", "none", True)
    assert [stage.name for stage in answer.stages] == ["writer", "text", "speaker", "sound"]
    speaker = answer.stages[2]
    assert [(one.name, one.ready, one.reason) for one in speaker.instances] == [
        ("speaker", True, ""),
        ("speaker@r1", False, "starting"),
    ]
    assert [(group.name, group.replicas) for group in answer.groups] == [
        ("writer", 1),
        ("text", 1),
        ("speaker", 2),
    ]
    assert answer.revisions == ["2"]
    assert "TwoLevelStreamPipelineConfig" in answer.config_yaml
    assert answer.gateway == pipeline.coordinator.gateway


async def test_a_reader_that_stalls_holds_back_its_own_request_only(
    pipeline: FakePipeline, stub: Stub
) -> None:
    stalled = stub.GenerateStream(pb.GenerateRequest(modalities=["text"]))
    stalled_key = await pipeline.submitted()
    quick = stub.GenerateStream(pb.GenerateRequest(modalities=["text"]))
    quick_key = await pipeline.submitted()
    await quick.read()
    wide = list(range(100))

    for number in wide:
        pipeline.text.output([stalled_key, quick_key], "text", [number, number])
        event = await quick.read()
        assert isinstance(event, pb.GenerateEvent)
        assert event.output.chunk_id == number

    stalled.cancel()
    quick.cancel()
    assert await pipeline.settled()


async def _awaited(
    call: grpc.aio.UnaryUnaryCall[pb.GenerateRequest, pb.GenerateResponse],
) -> pb.GenerateResponse:
    return await call


async def _read_all(
    call: grpc.aio.UnaryStreamCall[pb.GenerateRequest, pb.GenerateEvent],
) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def _error(
    call: grpc.aio.UnaryUnaryCall[pb.GenerateRequest, pb.GenerateResponse],
) -> ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return error_of(raised.value)
