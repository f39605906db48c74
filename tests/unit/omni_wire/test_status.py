"""What the end of a call means, told by gRPC itself."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import cast

import grpc
import pytest
from grpc import aio

from omni_wire.errors import RequestAborted, ServiceError, Unavailable
from omni_wire.status import abort_with, error_of
from tests.support.patience import PATIENT_SECONDS

METHOD = "/test.Service/Call"
CALLERS = 16
CALLS_BEFORE_STOP = 10 * CALLERS
STOPS = 5

Handler = Callable[[bytes, "aio.ServicerContext[bytes, bytes]"], Awaitable[bytes]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[tuple[aio.Server, str]]:
    """A server of one method."""
    method: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(handler)
    server = aio.server()
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("test.Service", {"Call": method})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield server, f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def unary(channel: aio.Channel) -> aio.UnaryUnaryMultiCallable[bytes, bytes]:
    return channel.unary_unary(METHOD)


def call_until_error(address: str) -> ServiceError:
    """Call again and again; return the first error."""
    with grpc.insecure_channel(address) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        while True:
            try:
                call(b"", timeout=PATIENT_SECONDS)
            except grpc.RpcError as error:
                return error_of(cast(grpc.Call, error))


@pytest.mark.parametrize("attempt", range(STOPS))
async def test_calls_that_a_stopping_server_fails_may_be_sent_again(attempt: int) -> None:
    """gRPC cancels those that come between the beginning of the stop and the client's knowing."""
    loop = asyncio.get_running_loop()
    busy, answered = asyncio.Event(), itertools.count(1)

    async def answering(request: bytes, _: aio.ServicerContext[bytes, bytes]) -> bytes:
        if next(answered) == CALLS_BEFORE_STOP:
            busy.set()
        return request

    with ThreadPoolExecutor(CALLERS) as pool:
        async with serving(answering) as (server, address):
            calls = [loop.run_in_executor(pool, call_until_error, address) for _ in range(CALLERS)]
            await busy.wait()
            await server.stop(PATIENT_SECONDS)
        errors = await asyncio.gather(*calls)
    assert all(error.info.retryable for error in errors), errors


async def test_a_call_that_grpc_cancels_for_its_server_is_unavailable() -> None:
    async def cancelling(request: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
        await context.abort(grpc.StatusCode.CANCELLED, "CANCELLED")

    async with serving(cancelling) as (_, address), aio.insecure_channel(address) as channel:
        with pytest.raises(aio.AioRpcError) as raised:
            await unary(channel)(b"")
    assert isinstance(error_of(raised.value), Unavailable)


async def test_a_request_that_was_aborted_stays_so() -> None:
    async def aborting(request: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
        await abort_with(context, RequestAborted("CANCELLED"))

    async with serving(aborting) as (_, address), aio.insecure_channel(address) as channel:
        with pytest.raises(aio.AioRpcError) as raised:
            await unary(channel)(b"")
    assert isinstance(error_of(raised.value), RequestAborted)


def test_a_call_cancelled_on_this_side_is_no_failure_of_the_server() -> None:
    with grpc.insecure_channel("127.0.0.1:9") as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        future = call.future(b"", wait_for_ready=True)
        future.cancel()
        with pytest.raises(grpc.FutureCancelledError):
            future.result()
        assert not error_of(cast(grpc.Call, future)).info.retryable
