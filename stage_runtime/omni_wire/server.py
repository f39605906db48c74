"""The gRPC server of a process: message limits, credentials, health and reflection in one place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from omni_wire.allocator import keep_message_memory
from omni_wire.credentials import Credentials, listen
from omni_wire.dialer import channel_options
from omni_wire.edge import DEFAULT_OPTIONS, EdgeOptions
from omni_wire.v1 import gateway_pb2, session_pb2

# Every file whose services or messages a reflection client may ask for is imported above.
_DESCRIPTORS = (session_pb2.DESCRIPTOR, gateway_pb2.DESCRIPTOR)


class WireServer:
    """A grpc.aio server; use it as an asynchronous context manager."""

    def __init__(
        self,
        services: Iterable[str],
        handlers: Sequence[grpc.GenericRpcHandler] = (),
        options: EdgeOptions = DEFAULT_OPTIONS,
    ) -> None:
        """`services` are the full names to announce by reflection, such as omni.v1.StageService."""
        # Whoever serves envelopes receives many large ones.
        keep_message_memory()
        self.grpc = aio.server(options=channel_options(options))
        self.grpc.add_generic_rpc_handlers(handlers)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.grpc)
        names = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self.grpc)

    def listen(self, address: str, credentials: Credentials) -> int:
        """Listen on `host:port` or `unix:/path`; returns the port. Raises CredentialsError."""
        return listen(self.grpc, address, credentials)

    async def set_serving(self, service: str, serving: bool) -> None:
        """State of a service, or of the whole process by the empty name, for health checks."""
        status = health_pb2.HealthCheckResponse
        value = status.SERVING if serving else status.NOT_SERVING
        await self._health.set(service, value)

    async def start(self) -> None:
        """Begin to serve."""
        await self.grpc.start()

    async def stop(self, grace_seconds: float = 1.0) -> None:
        """Turn health to NOT_SERVING, let calls end for a while, then end them."""
        await self._health.enter_graceful_shutdown()
        await self.grpc.stop(grace_seconds)

    async def __aenter__(self) -> WireServer:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.shield(self.stop())
