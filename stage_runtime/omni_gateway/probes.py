"""What a gateway answers to Kubernetes over plain HTTP.

/startupz and /livez as soon as it serves; /readyz while every stage has a replica and every warm-up
was answered, with a reason for each that lacks; /drain stops admission and answers when nothing is
in flight any more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from omni_gateway.coordinator import Coordinator
from omni_runtime.pod.probes import Answer, Probe

OK, UNAVAILABLE = 200, 503


def gateway_probes(
    coordinator: Coordinator, drain: Callable[[], Awaitable[None]]
) -> Mapping[str, Probe]:
    """Return what to answer at each path."""

    async def alive() -> Answer:
        return OK, "serving"

    async def ready() -> Answer:
        refusal = coordinator.state.refusal
        if refusal is not None:
            return UNAVAILABLE, refusal.message
        lines = coordinator.readiness.lines()
        return (UNAVAILABLE, "\n".join(lines)) if lines else (OK, "ready")

    async def drained() -> Answer:
        await drain()
        return OK, "drained"

    return {
        "GET /startupz": alive,
        "GET /livez": alive,
        "GET /readyz": ready,
        "GET /drain": drained,
    }
