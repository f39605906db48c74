"""gRPC health of a gateway: whether it serves, and which stages can.

Services: the empty name and `omni.v1.GatewayService` follow readiness (every stage has a replica,
and every warm-up was answered); `omni.v1.ControlService` serves as long as groups may register;
`stage/<name>` follows one stage.
"""

from __future__ import annotations

import asyncio

from grpc_health.v1 import health_pb2
from grpc_health.v1.health import OVERALL_HEALTH
from grpc_health.v1.health import aio as health_aio

from omni_gateway.coordinator import Coordinator, Readiness
from omni_wire.v1 import gateway_pb2, session_pb2

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
GATEWAY_SERVICE = gateway_pb2.DESCRIPTOR.services_by_name["GatewayService"].full_name
CONTROL_SERVICE = session_pb2.DESCRIPTOR.services_by_name["ControlService"].full_name


class HealthPublisher:
    """Keeps a health servicer in step with a Coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.servicer = health_aio.HealthServicer()
        self._coordinator = coordinator
        self._changed = asyncio.Event()
        self._ready = asyncio.Event()
        coordinator.watch_readiness(self._note)

    async def ready(self) -> None:
        """Return once the pipeline is, or was, ready."""
        await self._ready.wait()

    async def run(self) -> None:
        """Publish every change until cancelled; its owner runs it in a task group."""
        await self.servicer.set(CONTROL_SERVICE, SERVING)
        while True:
            self._changed.clear()
            await self._publish(self._coordinator.readiness)
            await self._changed.wait()

    async def shut_down(self) -> None:
        """Say for good that nothing is served; requests in flight go on."""
        await self.servicer.enter_graceful_shutdown()

    async def _publish(self, readiness: Readiness) -> None:
        overall = SERVING if readiness.ready else NOT_SERVING
        for service in (OVERALL_HEALTH, GATEWAY_SERVICE):
            await self.servicer.set(service, overall)
        for stage, count in readiness.replicas.items():
            await self.servicer.set(f"stage/{stage}", SERVING if count else NOT_SERVING)

    def _note(self, readiness: Readiness) -> None:
        self._changed.set()
        if readiness.ready:
            self._ready.set()
