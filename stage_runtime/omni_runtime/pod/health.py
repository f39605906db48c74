"""What a container answers to Kubernetes, from the state of its groups."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from omni_runtime.launcher.local_run import LocalRun
from omni_runtime.launcher.supervision_events import Phase
from omni_runtime.mps.errors import MpsError
from omni_runtime.pausing import PAUSE, RESUME
from omni_runtime.pod.attachment import attached
from omni_runtime.pod.probes import Answer, Probe

_OK, _UNAVAILABLE = 200, 503


class ContainerHealth:
    """The probes of one container. A group that is stuck is killed by its supervisor, so the
    container lives for as long as that answers.

    Args:
        pipes: MPS pipe directory of each process that has one.
    """

    def __init__(self, run: LocalRun, pipes: Mapping[str, Path]) -> None:
        self._run = run
        self._pipes = pipes
        self._started = False
        self._ended = asyncio.Event()

    @property
    def probes(self) -> Mapping[str, Probe]:
        """What answers each method and path."""
        return {
            "GET /startupz": self.startup,
            "GET /livez": self.liveness,
            "GET /readyz": self.readiness,
            "GET /drain": self.drain,
            "GET /mps": self.attachment,
            "POST /drain": self.pause,
            "POST /resume": self.resume,
        }

    async def startup(self) -> Answer:
        """Whether every group was ready at one time."""
        self._started = self._started or not self._waiting()
        return (_OK, "started") if self._started else (_UNAVAILABLE, self._waiting())

    async def liveness(self) -> Answer:
        """Whether the supervisor works."""
        return _OK, "alive"

    async def readiness(self) -> Answer:
        """Whether every group is ready now."""
        waiting = self._waiting()
        return (_UNAVAILABLE, waiting) if waiting else (_OK, "ready")

    async def attachment(self) -> Answer:
        """How many processes are attached to their MPS daemon."""
        try:
            return _OK, str(len(await attached(self._pipes, self._run.pids)))
        except MpsError as error:
            return _UNAVAILABLE, str(error)

    async def drain(self) -> Answer:
        """Let the groups finish their requests and end; answer when they have."""
        self._run.request_drain()
        await self._ended.wait()
        return _OK, "drained"

    async def pause(self) -> Answer:
        """Let the groups finish their requests and take no new ones, until they are told."""
        self._run.signal_ready(PAUSE)
        return _OK, "draining"

    async def resume(self) -> Answer:
        """Let the groups take requests again."""
        self._run.signal_ready(RESUME)
        return _OK, "resumed"

    def end(self) -> None:
        """Tell whoever waits for it that every group has ended."""
        self._ended.set()

    def _waiting(self) -> str:
        """Return which groups are not ready, and what they do instead; empty when all are."""
        phases = self._run.phases.items()
        return ", ".join(f"{name}: {phase}" for name, phase in phases if phase is not Phase.READY)
