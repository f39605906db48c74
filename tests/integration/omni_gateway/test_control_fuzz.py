"""Whatever bytes come to the control service, the caller gets a status and others are served."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import grpc
from hypothesis import given, settings
from hypothesis import strategies as st

from omni_wire.control_link import REGISTER
from omni_wire.handshake import enclose
from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.v1.session_pb2 import Header
from tests.support.patience import PATIENT_SECONDS
from tests.support.wire_groups import WireCluster, wire_cluster

BODIES = [field.name for field in Header.DESCRIPTOR.oneofs_by_name["body"].fields]
Stream: TypeAlias = "grpc.aio.StreamStreamMultiCallable[bytes, bytes]"


def connect(config_hash: str, session: int) -> bytes:
    """A handshake the gateway accepts."""
    header = Header()
    node = header.connect
    node.wire_version, node.oldest_wire_version, node.session = 2, 1, session
    node.group.group, node.group.incarnation = "text", session
    node.group.config_hash, node.group.address = config_hash, f"unix:/{session}"
    node.group.instances.append("text")
    return enclose(header)


@st.composite
def envelopes(draw: st.DrawFn) -> bytes:
    """Any bytes, or a header with some known body and any numbers in it."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=120))
    header = Header(sequence=draw(st.integers(0, 3)), payload_bytes=draw(st.integers(0, 1 << 40)))
    body = draw(st.sampled_from(BODIES))
    getattr(header, body).SetInParent()
    if body == "ack":
        header.ack.received = draw(st.integers(0, 9))
        header.ack.released.extend(draw(st.lists(st.integers(0, 9), max_size=3)))
    return enclose(header) + draw(st.binary(max_size=20))


@settings(max_examples=25, deadline=None)
@given(
    conversations=st.lists(
        st.tuples(st.booleans(), st.lists(envelopes(), max_size=4)), min_size=4, max_size=4
    )
)
def test_any_envelopes_get_a_status(conversations: list[tuple[bool, list[bytes]]]) -> None:
    with _server_failures() as failures:
        codes = asyncio.run(_converse(conversations))

    assert failures == []
    assert set(codes) <= {
        grpc.StatusCode.OK,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAVAILABLE,
        # What gRPC makes of a stream that ended while its client was still sending.
        grpc.StatusCode.INTERNAL,
    }


@contextmanager
def _server_failures() -> Iterator[list[str]]:
    """Collect what gRPC logs of exceptions that left a method of the server."""
    failures: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            failures.append(record.getMessage())

    log = logging.getLogger("grpc._cython.cygrpc")
    collector = Collector(logging.ERROR)
    log.addHandler(collector)
    yield failures
    log.removeHandler(collector)


async def _converse(
    conversations: Sequence[tuple[bool, Sequence[bytes]]],
) -> list[grpc.StatusCode]:
    async with wire_cluster() as cluster:
        codes = await asyncio.gather(
            *(
                _call(cluster, number, greets, messages)
                for number, (greets, messages) in enumerate(conversations, 1)
            )
        )
        answer = await cluster.stub.GetPipeline(pb.GetPipelineRequest())
        assert answer.name == "numbers"
        healthy = await cluster.group("text", address="unix:/healthy")
        assert healthy.welcomed.is_set()
    return codes


async def _call(
    cluster: WireCluster, number: int, greets: bool, messages: Sequence[bytes]
) -> grpc.StatusCode:
    register: Stream = cluster.channel.stream_stream(REGISTER)
    greeting = [connect(cluster.config_hash, number)] if greets else []
    call = register(_sent([*greeting, *messages]))
    async with asyncio.timeout(PATIENT_SECONDS):
        try:
            async for _ in call:
                pass
        except grpc.aio.AioRpcError as error:
            return error.code()
        return await call.code()


async def _sent(messages: Sequence[bytes]) -> AsyncIterator[bytes]:
    for message in messages:
        yield message
