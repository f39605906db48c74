"""API keys, limits and the access log for the gRPC API."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc

from omni_gateway.access.guard import Guard, caller_of
from omni_runtime.logging import EventLogger
from omni_wire.errors import ServiceError
from omni_wire.status import abort_with

logger = EventLogger("omni_gateway.access_log")

GUARDED = "/omni.v1.GatewayService/"
"""Methods that need a key. Groups register by certificate, and probes by nothing."""
UNCOUNTED = f"{GUARDED}GetPipeline"

_Handler = Any  # grpc.RpcMethodHandler, whose stubs lack the fields of the named tuple it is
_Context = grpc.aio.ServicerContext[Any, Any]


class GuardInterceptor(grpc.aio.ServerInterceptor):
    """Lets calls of the API in by their key, and writes a line for each."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Wrap the API's methods; the others pass."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(GUARDED):
            return handler
        if handler.request_streaming:
            return handler._replace(stream_stream=self._stream(handler.stream_stream, method))
        if handler.response_streaming:
            return handler._replace(unary_stream=self._stream(handler.unary_stream, method))
        return handler._replace(unary_unary=self._unary(handler.unary_unary, method))

    def _unary(
        self, answer: Callable[[Any, _Context], Awaitable[Any]], method: str
    ) -> Callable[[Any, _Context], Awaitable[Any]]:
        async def guarded(request: object, context: _Context) -> object:
            async def once() -> AsyncIterator[object]:
                yield await answer(request, context)

            async for response in self._let_in(once(), context, method):
                return response
            return None  # the call was aborted

        return guarded

    def _stream(
        self, answer: Callable[[Any, _Context], AsyncIterator[Any]], method: str
    ) -> Callable[[Any, _Context], AsyncIterator[Any]]:
        async def guarded(request: object, context: _Context) -> AsyncIterator[object]:
            async with aclosing(self._let_in(answer(request, context), context, method)) as found:
                async for response in found:
                    yield response

        return guarded

    async def _let_in(
        self, responses: AsyncIterator[Any], context: _Context, method: str
    ) -> AsyncGenerator[object, None]:
        began, caller = time.monotonic(), "?"
        try:
            key = self._guard.identify(_authorization(context))
            caller = caller_of(key)
            with self._guard.using(None if method == UNCOUNTED else key):
                async for response in responses:
                    yield response
        except ServiceError as error:
            await abort_with(context, error)
        finally:
            logger.info(
                "grpc call",
                method=method.removeprefix(GUARDED),
                status=_status(context),
                caller=caller,
                seconds=f"{time.monotonic() - began:.6f}",
            )


def _authorization(context: _Context) -> str | None:
    for name, value in context.invocation_metadata() or ():
        if name == "authorization":
            return value if isinstance(value, str) else None
    return None


def _status(context: _Context) -> str:
    code: Any = context.code()
    if context.cancelled():
        return "CANCELLED"
    if isinstance(code, grpc.StatusCode):
        return code.name
    return _NAMES.get(code, "OK")


_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}
