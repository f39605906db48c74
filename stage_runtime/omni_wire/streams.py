"""A gRPC stream of raw messages seen from either end, and nothing else of gRPC.

The generated stubs would run every envelope through the generated class; these streams hand over
bytes as they are.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import grpc
from grpc import aio

from omni_wire.errors import Draining, ServiceError
from omni_wire.status import error_of


class StreamBroken(Exception):
    """The stream ended for a reason that another stream may not have."""


class ByteStream(Protocol):
    """Whole messages in order, both ways. One task may read while another writes."""

    async def read(self) -> bytes | None:
        """The next message, None once the other side has finished.

        Raises:
            StreamBroken: the connection is gone.
            ServiceError: the other side refused, for good.
        """

    async def write(self, data: bytes) -> None:
        """Send a message; returns when the transport takes more. Raises as `read`."""


# Refusals that the same Connect will meet again.
_FINAL = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)


class ClientStream:
    """The dialling end."""

    def __init__(self, call: aio.StreamStreamCall[bytes, bytes]) -> None:
        self._call = call

    async def read(self) -> bytes | None:
        try:
            data = await self._call.read()
        except aio.AioRpcError as error:
            raise _meaning_of(error) from error
        if isinstance(data, bytes):
            return data
        await self._raise_status()
        return None

    async def write(self, data: bytes) -> None:
        try:
            await self._call.write(data)
        except aio.AioRpcError as error:
            raise _meaning_of(error) from error
        except asyncio.InvalidStateError:
            await self._raise_status()
            raise StreamBroken("the call has ended") from None

    async def _raise_status(self) -> None:
        """A stream that ended without an exception may still have ended badly."""
        code = await self._call.code()
        if code is not grpc.StatusCode.OK:
            error = aio.AioRpcError(
                code,
                await self._call.initial_metadata(),
                await self._call.trailing_metadata(),
                await self._call.details(),
            )
            raise _meaning_of(error)


class ServerStream:
    """The accepting end."""

    def __init__(self, context: aio.ServicerContext[Any, Any]) -> None:
        self._context = context

    async def read(self) -> bytes | None:
        try:
            data = await self._context.read()
        except aio.AbortError:
            raise
        except (aio.BaseError, aio.UsageError, RuntimeError) as error:
            raise StreamBroken(str(error)) from error
        return data if isinstance(data, bytes) else None

    async def write(self, data: bytes) -> None:
        try:
            await self._context.write(data)
        except aio.AbortError:
            raise
        except (aio.BaseError, aio.UsageError, RuntimeError) as error:
            raise StreamBroken(str(error)) from error


def _meaning_of(error: aio.AioRpcError) -> ServiceError | StreamBroken:
    """What a failed call means to the dialling side."""
    meaning = error_of(error)
    if error.code() in _FINAL or isinstance(meaning, Draining):
        return meaning
    return StreamBroken(f"{error.code().name}: {error.details()}")
