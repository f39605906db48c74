"""A display of a local run that tests wait on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from omni_runtime.launcher.supervision_events import Phase
from tests.support.patience import PATIENT_SECONDS


class WatchedDisplay:
    """Keeps every line and wakes up whoever waits for one."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._changed = asyncio.Event()

    def begin(self, names: Sequence[str]) -> None:
        self._add(f"begin {' '.join(names)}")

    def log(self, name: str, line: str) -> None:
        self._add(f"{name} | {line}")

    def phase(self, name: str, phase: Phase, status: str) -> None:
        return

    def say(self, name: str, text: str) -> None:
        self._add(f"omni | {name}: {text}")

    def failure(self, name: str, reason: str, last_lines: Sequence[str]) -> None:
        self._add(f"failure | {name}: {reason}: {' / '.join(last_lines)}")

    def ready(self, addresses: Sequence[str], seconds: float) -> None:
        self._add(f"all ready at {' '.join(addresses)}")

    def close(self) -> None:
        self._add("closed")

    async def saw(self, text: str, times: int = 1) -> str:
        """Wait until so many lines hold a text; return the last one."""
        async with asyncio.timeout(PATIENT_SECONDS):
            while len(found := [line for line in self.lines if text in line]) < times:
                self._changed.clear()
                await self._changed.wait()
        return found[times - 1]

    def _add(self, line: str) -> None:
        self.lines.append(line)
        self._changed.set()
