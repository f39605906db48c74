"""Servers under hostile callers: a status for each call, and honest callers are served on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omni_wire.control_link import REGISTER
from omni_wire.control_link import SERVICE as CONTROL
from omni_wire.control_server import ControlServer
from omni_wire.credentials import Plaintext
from omni_wire.encoder import encode_endpoint
from omni_wire.errors import ServiceError
from omni_wire.grpc_edge import EXCHANGE, GrpcEdgeSender
from omni_wire.handshake import enclose
from omni_wire.identity import Endpoint, RequestKey
from omni_wire.messages import Row, StepFrame
from omni_wire.server import WireServer
from omni_wire.stage_server import SERVICE as STAGES
from omni_wire.stage_server import StageServer
from omni_wire.status import error_of
from omni_wire.v1.session_pb2 import Header
from tests.support.edges import SMALL, SOURCE, Recorder, Reports, running
from tests.support.groups import KeptGroups

A = RequestKey("gateway", "a")
METHODS = (EXCHANGE, REGISTER)
# A session that was ended for noise cannot be resumed, hence the last.
TYPED = {"WIRE_FORMAT", "VERSION_MISMATCH", "STALE_INCARNATION"}


@asynccontextmanager
async def process(address: str, receiver: Recorder) -> AsyncIterator[WireServer]:
    """A process that hosts a stage and a gateway."""
    stage, control = StageServer(22, SMALL), ControlServer("gw", KeptGroups(), SMALL)
    stage.host("talker", receiver)
    handlers = [stage.handler(), control.handler()]
    server = WireServer([STAGES, CONTROL], handlers, SMALL)
    server.listen(address, Plaintext())
    async with server:
        yield server
        stage.close()
        control.close()


async def status_of(address: str, method: str, messages: Sequence[bytes]) -> ServiceError:
    """How a call that sends these messages ends, and that it does."""
    return await asyncio.to_thread(_call, address, method, messages)


def _call(address: str, method: str, messages: Sequence[bytes]) -> ServiceError:
    # The asyncio client loses the status when it still writes while the server ends the call.
    with grpc.insecure_channel(address) as channel:
        exchange: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(method)
        call = exchange(iter(messages), timeout=20)
        try:
            for _ in call:
                pass
        except grpc.RpcError:
            details, trailing = call.details(), aio.Metadata(*call.trailing_metadata())
            return error_of(aio.AioRpcError(call.code(), aio.Metadata(), trailing, details))
    raise AssertionError("the call was not refused")


def connect(**changes: int | str) -> bytes:
    """A Connect of an edge, correct but for the changes."""
    header = Header()
    header.connect.wire_version = int(changes.get("version", 2))
    header.connect.oldest_wire_version = int(changes.get("oldest", 1))
    header.connect.session = 5
    encode_endpoint(SOURCE, header.connect.edge.source)
    instance = str(changes.get("instance", "talker"))
    incarnation = int(changes.get("incarnation", 22))
    encode_endpoint(Endpoint(instance, "", incarnation), header.connect.edge.destination)
    return enclose(header)


def empty(kind: str) -> bytes:
    header = Header()
    getattr(header, kind).SetInParent()
    return enclose(header)


HOSTILE = {
    "nothing": ([], "WIRE_FORMAT"),
    "noise": ([b"\xff" * 100], "WIRE_FORMAT"),
    "empty message": ([b""], "WIRE_FORMAT"),
    "no Connect": ([empty("ack")], "WIRE_FORMAT"),
    "Connect about nothing": ([empty("connect")], "VERSION_MISMATCH"),
    "stale incarnation": ([connect(incarnation=21)], "STALE_INCARNATION"),
    "no incarnation": ([connect(incarnation=0)], "WIRE_FORMAT"),
    "old version": ([connect(version=0, oldest=0)], "VERSION_MISMATCH"),
    "Connect twice": ([connect(), connect()], "WIRE_FORMAT"),
    "noise later": ([connect(), b"\x0a\xff"], "WIRE_FORMAT"),
    "unknown kind": ([connect(), b"\x0a\x09\x09\x01" + bytes(7)], "WIRE_FORMAT"),
    "acknowledges the future": ([connect(), b"\x0a\x0b\x52\x09\x09\x01" + bytes(7)], "WIRE_FORMAT"),
    "oversize": ([bytes(SMALL.envelope_bytes + 1)], "RESOURCE_EXHAUSTED"),
}


@pytest.mark.parametrize(("messages", "reason"), HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_hostile_call_ends_with_its_reason(
    messages: list[bytes], reason: str, tmp_path: Path
) -> None:
    address, receiver = f"unix:{tmp_path}/p.sock", Recorder()
    async with process(address, receiver):
        assert (await status_of(address, EXCHANGE, messages)).info.reason == reason
        await serves_honest_callers(address, receiver)


async def serves_honest_callers(address: str, receiver: Recorder) -> None:
    sender = GrpcEdgeSender(SOURCE, Endpoint("talker", address, 22), Plaintext(), Reports(), SMALL)
    async with running(sender):
        sender.post(StepFrame("thinker", 0, (Row(A, 0),), {"x": np.zeros((1, 2))}))
        await receiver.until(lambda: bool(receiver.chunks(A)))


@given(
    st.lists(
        st.lists(st.binary(max_size=200) | st.just(connect()), min_size=1, max_size=4),
        min_size=10,
        max_size=10,
    )
)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_arbitrary_bytes_end_every_method_with_a_status(
    tmp_path_factory: pytest.TempPathFactory, calls: list[list[bytes]]
) -> None:
    address = f"unix:{tmp_path_factory.mktemp('fuzz')}/p.sock"

    async def attack() -> None:
        receiver = Recorder()
        async with process(address, receiver):
            for method in METHODS:
                for messages in calls:
                    noise = [message for message in messages if message != connect()] or [b"\x00"]
                    sent = messages if method == EXCHANGE else noise
                    error = await status_of(address, method, [*sent, b"\xff"])
                    assert error.info.reason in TYPED
            await serves_honest_callers(address, receiver)

    asyncio.run(attack())


async def test_an_instance_that_is_not_hosted_may_come_later(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/p.sock"
    async with process(address, Recorder()):
        error = await status_of(address, EXCHANGE, [connect(instance="vocoder")])
    assert error.info.reason == "UNAVAILABLE"
    assert error.info.retryable


async def test_health_follows_the_process_and_reflection_names_the_services(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/p.sock"
    status = health_pb2.HealthCheckResponse
    async with process(address, Recorder()) as server, aio.insecure_channel(address) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=status.FromString,
        )
        for serving in (True, False):
            await server.set_serving(STAGES, serving)
            answer = await check(health_pb2.HealthCheckRequest(service=STAGES))
            assert answer.status == (status.SERVING if serving else status.NOT_SERVING)
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        reflect = channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            request_serializer=type(ask).SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        async for listed in reflect(iter([ask])):
            names = {service.name for service in listed.list_services_response.service}
    assert {STAGES, CONTROL} <= names
