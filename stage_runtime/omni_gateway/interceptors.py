"""What every call of the API has in common, so that no client can fill the log.

A request that is no message gets a typed refusal; gRPC itself would answer UNKNOWN and log a
traceback for each. A client that leaves while it is written to is no error; gRPC would log one.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from omni_wire.errors import WireFormatError
from omni_wire.status import abort_with

_Handler = Any  # grpc.RpcMethodHandler, whose stubs lack the fields of the named tuple it is
_Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class _Undecodable:
    """Stands in for a request whose bytes are no message of the method's type."""

    problem: str


class DecodeInterceptor(grpc.aio.ServerInterceptor):
    """Answers INVALID_ARGUMENT, reason WIRE_FORMAT, to bytes that are not the method's request."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Wrap methods that take one request; streams of requests decode for themselves."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming or handler.request_deserializer is None:
            return handler
        lenient = handler._replace(request_deserializer=_lenient(handler.request_deserializer))
        if handler.response_streaming:
            return lenient._replace(unary_stream=_refusing_stream(handler.unary_stream))
        return lenient._replace(unary_unary=_refusing(handler.unary_unary))


class DepartureFilter(logging.Filter):
    """Drops gRPC's complaint that a client left while its answer was written."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is to be logged."""
        return not record.getMessage().startswith("ExecuteBatchError")


GRPC_LOGGER = logging.getLogger("grpc._cython.cygrpc")


def _lenient(decode: Callable[[bytes], object]) -> Callable[[bytes], object]:
    def decode_or_say_why(data: bytes) -> object:
        try:
            return decode(data)
        except DecodeError as error:
            return _Undecodable(str(error))

    return decode_or_say_why


def _refusing(
    answer: Callable[[Any, _Context], Awaitable[object]],
) -> Callable[[object, _Context], Awaitable[object]]:
    async def answer_or_refuse(request: object, context: _Context) -> object:
        if isinstance(request, _Undecodable):
            await abort_with(context, WireFormatError(request.problem))
        return await answer(request, context)

    return answer_or_refuse


def _refusing_stream(
    answer: Callable[[Any, _Context], AsyncIterator[object]],
) -> Callable[[object, _Context], AsyncIterator[object]]:
    async def answer_or_refuse(request: object, context: _Context) -> AsyncIterator[object]:
        if isinstance(request, _Undecodable):
            await abort_with(context, WireFormatError(request.problem))
        async for message in answer(request, context):
            yield message

    return answer_or_refuse
