"""Logs of a container: lines of groups as they are, what the supervisor says as log lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from omni_runtime.launcher.supervision_events import Phase
from omni_runtime.logging import EventLogger

logger = EventLogger(__name__)


class LoggedDisplay:
    """Passes lines on and logs events; groups name themselves in their lines already."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def begin(self, names: Sequence[str]) -> None:
        logger.info("starting", groups=",".join(names))

    def log(self, name: str, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def phase(self, name: str, phase: Phase, status: str) -> None:
        return

    def say(self, name: str, text: str) -> None:
        logger.info(text, process=name or "-")

    def failure(self, name: str, reason: str, last_lines: Sequence[str]) -> None:
        # Its last lines are the lines above.
        logger.warning("a group ended", process=name, reason=reason)

    def ready(self, addresses: Sequence[str], seconds: float) -> None:
        logger.info("ready", seconds=f"{seconds:.1f}")

    def close(self) -> None:
        self._stream.flush()
