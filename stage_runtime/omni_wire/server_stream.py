"""How a server handles one stream of envelopes, whatever it serves."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from grpc import aio

from omni_wire.errors import ServiceError, WireFormatError
from omni_wire.status import abort_with
from omni_wire.streams import ByteStream, ServerStream, StreamBroken

logger = logging.getLogger(__name__)

# A caller that connects and says nothing is let go after this long.
HANDSHAKE_SECONDS = 5.0


StreamMethod = Callable[[object, aio.ServicerContext[Any, Any]], Awaitable[None]]


def stream_handler(service: str, name: str, method: StreamMethod) -> grpc.GenericRpcHandler:
    """A service with one method that streams bytes both ways, past the generated classes."""
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(method)
    return grpc.method_handlers_generic_handler(service, {name: handler})


async def serve_stream(
    context: aio.ServicerContext[Any, Any], serve: Callable[[ByteStream], Awaitable[None]]
) -> None:
    """Run `serve` over a call's stream; what it raises becomes the call's status."""
    try:
        await serve(ServerStream(context))
    except StreamBroken as error:
        logger.debug("stream broke peer=%s cause=%s", context.peer(), error)
    except TimeoutError:
        await abort_with(context, WireFormatError("no handshake in time"))
    except ServiceError as error:
        logger.info("stream refused peer=%s reason=%s", context.peer(), error)
        await abort_with(context, error)
