"""One gateway: the Coordinator behind its gRPC servers, with health, reflection and metrics.

Clients and groups may come by the same addresses, as on one machine, or by addresses of their own,
as in a cluster, where clients must not reach the control service.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_reflection.v1alpha import reflection
from prometheus_client import start_http_server

from omni_config.planning.admission import max_in_flight
from omni_config.resolution.inspection import config_hash
from omni_config.schema import PipelineConfig
from omni_gateway.access.grpc_guard import GuardInterceptor
from omni_gateway.api_service import ApiService
from omni_gateway.chat.metrics import ChatMetrics
from omni_gateway.chat.service import ChatService
from omni_gateway.clients import Clients
from omni_gateway.control_server import control_server
from omni_gateway.coordinator import Coordinator, CoordinatorOptions, ReplicaGate, topology_of
from omni_gateway.generate_service import description_handler
from omni_gateway.health import CONTROL_SERVICE, GATEWAY_SERVICE, HealthPublisher
from omni_gateway.http_api.app import http_app
from omni_gateway.http_api.context import HttpContext
from omni_gateway.http_api.server import serving_http
from omni_gateway.interceptors import DecodeInterceptor
from omni_gateway.memory import clients_share_bytes, usable_memory_bytes
from omni_gateway.pipeline_view import PipelineView
from omni_gateway.probes import gateway_probes
from omni_gateway.routes_file import follow_routes
from omni_gateway.uploads import MAX_HELD_BYTES, UploadMemory
from omni_gateway.warm_up import WarmUpRunner
from omni_runtime.pod.probes import serving_probes
from omni_wire.credentials import Credentials, ServerTls, listen
from omni_wire.errors import Draining
from omni_wire.v1 import gateway_pb2_grpc

LARGEST_MESSAGE_BYTES = 64 << 20
"""Largest request or answer of the API; control streams part what is larger than 512 KiB."""
SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", LARGEST_MESSAGE_BYTES),
    # A client that is gone without a word is noticed, and its request aborted.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # Two gateways on one port would share its clients at random.
    ("grpc.so_reuseport", 0),
)
MAX_CALLS = 4096
"""Most calls of one port at once, those that wait for an answer included; gRPC refuses others."""
STOP_SECONDS = 1.0
"""Time for answers that are already decided to reach their clients."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a gateway is reached; gRPC targets to bind, `HOST:PORT` or `unix:PATH`.

    Attributes:
        api: for clients.
        control: for groups; when empty, groups come by the addresses for clients.
        metrics_port: of the Prometheus endpoint; null for none.
        health_port: of the HTTP probes; null for none.
        http: of the HTTP API, `HOST:PORT`.
    """

    api: tuple[str, ...]
    control: tuple[str, ...] = ()
    metrics_port: int | None = None
    health_port: int | None = None
    http: tuple[str, ...] = ()


def coordinator_options(
    config: PipelineConfig, defaults: CoordinatorOptions | None = None
) -> CoordinatorOptions:
    """Return the defaults with what the configuration says about limits."""
    options = defaults or CoordinatorOptions()
    limit = max_in_flight(config)
    return replace(
        options,
        max_in_flight=options.max_in_flight if limit is None else limit,
        max_total_backlog_bytes=config.stream_delivery.max_total_backlog_bytes,
    )


class GatewayServer:
    """One gateway; made and run inside an event loop.

    Attributes:
        bound: the addresses for clients, with the ports that were chosen.
        pages: URLs of the HTTP API.
    """

    def __init__(
        self,
        config: PipelineConfig,
        addresses: Addresses,
        credentials: Credentials,
        options: CoordinatorOptions | None = None,
        *,
        clients: Clients | None = None,
        provenance: Mapping[str, str] | None = None,
        routes: Path | None = None,
        drain_seconds: float = 30.0,
    ) -> None:
        self.coordinator = Coordinator(topology_of(config), options or coordinator_options(config))
        self.bound: tuple[str, ...] = ()
        self.pages: tuple[str, ...] = ()
        self._clients = clients or Clients()
        self._config = config
        self._hash = config_hash(config)
        self._addresses = addresses
        self._routes_file = routes
        self._drain_seconds = drain_seconds
        self._credentials = credentials
        self._health = HealthPublisher(self.coordinator)
        self._control = control_server(self.coordinator, self._hash)
        self._chat = ChatService(
            self.coordinator,
            PipelineView(config, self._hash, provenance or {}),
            config.audio_sample_rate,
            ChatMetrics(self.coordinator.metrics.registry),
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve while the context lasts; leaving it cuts what is still in flight.

        Raises:
            CredentialsError: an address cannot be listened on, or a certificate cannot be read.
        """
        servers = self._servers()
        async with AsyncExitStack() as stack:
            stack.enter_context(self._metrics())
            for server in servers:
                await server.start()
                stack.push_async_callback(server.stop, STOP_SECONDS)
            await self._serve_http(stack)
            stack.callback(self._control.close)
            stack.callback(self.coordinator.stop, Draining("the gateway stops"))
            for duty in self._duties():
                stack.push_async_callback(_cancelled, asyncio.create_task(duty))
            await self._serve_probes(stack)
            yield

    async def ready(self) -> None:
        """Return once the pipeline is, or was, ready: warmed up over every route."""
        await self._health.ready()

    async def drain(self) -> None:
        """Stop being ready, take nothing new, and wait for what is in flight, but not for ever."""
        await self._health.shut_down()
        await self.coordinator.drain(self._drain_seconds)

    def _servers(self) -> list[grpc.aio.Server]:
        api = self._server(control=not self._addresses.control)
        self.bound = tuple(
            self._listen(api, one, self._clients.grpc_credentials(one, self._credentials))
            for one in self._addresses.api
        )
        if not self._addresses.control:
            return [api]
        control = self._server(api=False)
        for address in self._addresses.control:
            self._listen(control, address, self._credentials)
        return [api, control]

    def _server(self, *, api: bool = True, control: bool = True) -> grpc.aio.Server:
        # Who is not let in learns nothing, not even that its request could not be read.
        interceptors = [GuardInterceptor(self._clients.guard)] if api else []
        server = grpc.aio.server(
            interceptors=[*interceptors, DecodeInterceptor()],
            options=SERVER_OPTIONS,
            maximum_concurrent_rpcs=MAX_CALLS,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health.servicer, server)
        names = [HEALTH_SERVICE, reflection.SERVICE_NAME]
        uploads = UploadMemory(clients_share_bytes(MAX_HELD_BYTES, usable_memory_bytes()))
        service = ApiService(self.coordinator, self._chat.pipeline, self._chat, uploads)
        names.append(GATEWAY_SERVICE)
        if api:
            gateway_pb2_grpc.add_GatewayServiceServicer_to_server(service, server)
        else:
            server.add_generic_rpc_handlers([description_handler(service)])
        if control:
            server.add_generic_rpc_handlers([self._control.handler()])
            names.append(CONTROL_SERVICE)
        reflection.enable_server_reflection(names, server)
        return server

    def _listen(
        self, server: grpc.aio.Server, address: str, credentials: Credentials | ServerTls
    ) -> str:
        port = listen(server, address, credentials)
        if address.startswith("unix:"):
            return address
        return f"{address.rpartition(':')[0]}:{port}"

    def _duties(self) -> Iterator[Coroutine[None, None, None]]:
        yield self._health.run()
        yield self._clients.guard.follow()
        yield WarmUpRunner(self.coordinator).run()
        if self._routes_file is not None:
            yield follow_routes(self._routes_file, ReplicaGate(self.coordinator).set_routes)

    async def _serve_probes(self, stack: AsyncExitStack) -> None:
        if self._addresses.health_port is not None:
            probes = gateway_probes(self.coordinator, self.drain)
            await stack.enter_async_context(serving_probes(self._addresses.health_port, probes))

    async def _serve_http(self, stack: AsyncExitStack) -> None:
        if not self._addresses.http:
            return
        clients = self._clients
        app = http_app(HttpContext(self._chat, clients.guard), clients.limits)
        scheme = "http" if clients.certificate is None else "https"
        for address in self._addresses.http:
            serving = serving_http(app, address, clients.limits, clients.certificate)
            self.pages += (f"{scheme}://{await stack.enter_async_context(serving)}",)

    @contextmanager
    def _metrics(self) -> Iterator[None]:
        if self._addresses.metrics_port is None:
            yield
            return
        registry = self.coordinator.metrics.registry
        server, thread = start_http_server(self._addresses.metrics_port, registry=registry)
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


async def _cancelled(task: asyncio.Task[None]) -> None:
    """End a task that runs for as long as the gateway, and raise what made it end earlier."""
    if task.done():
        task.result()
    task.cancel()
    await asyncio.wait([task])
