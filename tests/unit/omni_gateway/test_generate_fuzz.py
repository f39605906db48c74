"""Whatever bytes a client sends, it gets a status, and the next client is served."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

import grpc
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from omni_gateway.coordinator import CoordinatorOptions
from omni_gateway.health import GATEWAY_SERVICE
from omni_wire.trees import to_proto
from omni_wire.v1 import gateway_pb2 as pb
from tests.support.fake_groups import FakePipeline

VALID = pb.GenerateRequest(
    request_id="r",
    modalities=["text"],
    inputs={"samples": to_proto({"a": np.arange(6), "b": ["x", 1.5, None, b"y"]})},
    params={"deep": to_proto([[[[1]]]])},
    labels={"k": "v"},
).SerializeToString()

Unary: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]"
Stream: TypeAlias = "grpc.aio.UnaryStreamMultiCallable[bytes, bytes]"
NO_REPLICAS = CoordinatorOptions(route_wait_seconds=0.0)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid request with some of its bytes replaced, removed or repeated."""
    data = bytearray(VALID)
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 8)))
        data[start:end] = draw(st.binary(max_size=8))
    return bytes(data)


@settings(max_examples=15, deadline=None)
@given(messages=st.lists(st.one_of(st.binary(max_size=200), mutated()), min_size=8, max_size=8))
def test_any_bytes_get_a_status(messages: list[bytes]) -> None:
    codes = asyncio.run(_send_all(messages))

    assert set(codes) <= {
        grpc.StatusCode.OK,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNAVAILABLE,
    }


async def _send_all(messages: Sequence[bytes]) -> list[grpc.StatusCode]:
    pipeline = FakePipeline(NO_REPLICAS)
    pipeline.writer.die()
    codes = []
    async with pipeline.serve() as stub, pipeline.channel() as channel:
        for method in ("Generate", "GetPipeline"):
            call: Unary = channel.unary_unary(f"/{GATEWAY_SERVICE}/{method}")
            codes += await asyncio.gather(*(_code(call(message)) for message in messages))
        stream: Stream = channel.unary_stream(f"/{GATEWAY_SERVICE}/GenerateStream")
        codes += await asyncio.gather(*(stream(message).code() for message in messages))
        assert (await stub.GetPipeline(pb.GetPipelineRequest())).name == "numbers"
    assert pipeline.clean()
    return codes


async def _code(call: grpc.aio.UnaryUnaryCall[bytes, bytes]) -> grpc.StatusCode:
    return await call.code()
