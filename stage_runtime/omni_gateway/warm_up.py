"""Sends the warm-ups that a model's author declared, until each was answered.

The first request over a route pays for what is made on first use: kernels, caches, connections. A
pipeline is not ready before somebody who is no client has paid that, and not before it was seen
that the route leads to its end.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from uuid import uuid4

from omni_gateway.coordinator import Coordinator, Readiness, WarmUpDue
from omni_runtime.logging import EventLogger
from omni_wire.errors import ServiceError

logger = EventLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits between tries of a warm-up that fails: doubled each time, up to a bound.

    Attributes:
        first_seconds: after the first try.
        longest_seconds: short enough that a pipeline which was mended is soon ready.
    """

    first_seconds: float = 0.5
    longest_seconds: float = 15.0

    def after(self, wait: float) -> float:
        """Return the wait that follows another; 0 stands for none."""
        return min(2 * wait, self.longest_seconds) if wait else self.first_seconds


@dataclass(eq=False)
class WarmUpRunner:
    """Tries what is due, one request of each warm-up and revision at a time."""

    coordinator: Coordinator
    backoff: Backoff = field(default_factory=Backoff)
    _running: set[WarmUpDue] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Warm replicas up whenever some are due, until cancelled."""
        self.coordinator.watch_readiness(self._note)
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                for due in self.coordinator.readiness.due:
                    if due not in self._running:
                        self._running.add(due)
                        tasks.create_task(self._until_answered(due))
                await self._changed.wait()

    def _note(self, readiness: Readiness) -> None:
        self._changed.set()

    async def _until_answered(self, due: WarmUpDue) -> None:
        wait = 0.0
        while due in self.coordinator.readiness.due:
            try:
                await self._send(due)
            except ServiceError as error:
                wait = self.backoff.after(wait)
                self._note_failure(due, error, wait)
                await asyncio.sleep(wait)
        self._running.discard(due)
        self._changed.set()

    async def _send(self, due: WarmUpDue) -> None:
        async with self.coordinator.submit(
            self.coordinator.state.topology.warm_ups[due.name],
            request_id=f"warm-up-{due.name}-{uuid4().hex[:12]}",
            revision=due.revision,
            warm_up=due.name,
        ) as handle:
            await handle.result()

    def _note_failure(self, due: WarmUpDue, error: ServiceError, wait: float) -> None:
        stage = f"stage '{error.info.stage}': " if error.info.stage else ""
        problem = f"{stage}{error.info.reason}: {error.message}"
        self.coordinator.warm_up_failed(due.name, problem)
        logger.warning(
            "warm-up failed", name=due.name, revision=due.revision or "-", reason=problem, wait=wait
        )
