"""What the user of a local run sees; plain lines here, a live table in the command line."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol, TextIO

from omni_runtime.launcher.supervision_events import Phase

_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
_BOLD_RED = "1;31"
_DIM = "2"


class Display(Protocol):
    """Told of everything that happens in a run, in order."""

    def begin(self, names: Sequence[str]) -> None:
        """These processes will run."""

    def log(self, name: str, line: str) -> None:
        """A process wrote a line."""

    def phase(self, name: str, phase: Phase, status: str) -> None:
        """A process is now there; `status` is what it last said of itself."""

    def say(self, name: str, text: str) -> None:
        """The launcher says something about a process, or about the run when `name` is empty."""

    def failure(self, name: str, reason: str, last_lines: Sequence[str]) -> None:
        """A process failed; its last lines of output may tell why."""

    def ready(self, addresses: Sequence[str], seconds: float) -> None:
        """Everything is ready for the first time, so long after the start."""

    def close(self) -> None:
        """The run ended."""


class LineDisplay:
    """Writes a line per event, each with the name of its process in front.

    Args:
        colours: give each process a colour, for a terminal.
    """

    def __init__(self, stream: TextIO, *, colours: bool) -> None:
        self._stream, self._colours = stream, colours
        self._names: list[str] = []
        self._width = len("omni")

    def begin(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._width = max(map(len, (*names, "omni")))

    def log(self, name: str, line: str) -> None:
        self._write(name, line)

    def phase(self, name: str, phase: Phase, status: str) -> None:
        # What matters of it is also said; lines are not repeated for each step.
        return

    def say(self, name: str, text: str) -> None:
        self._write("omni", f"{name}: {text}" if name else text)

    def failure(self, name: str, reason: str, last_lines: Sequence[str]) -> None:
        self._write("omni", self._styled(f"{name} ended: {reason}", _BOLD_RED))
        if not last_lines:
            self._write("omni", f"  {name} wrote nothing")
            return
        self._write("omni", f"  last lines of {name}:")
        for line in last_lines:
            self._write("omni", f"    {line}")

    def ready(self, addresses: Sequence[str], seconds: float) -> None:
        where = " and ".join(addresses) or "no address"
        self._write("omni", f"ready in {seconds:.1f} s; the gateway listens on {where}")

    def close(self) -> None:
        self._stream.flush()

    def line(self, name: str, text: str) -> str:
        """Return a line as it is shown, without its end."""
        return f"{self._styled(f'{name:{self._width}} |', self._colour(name))} {text}"

    def _write(self, name: str, text: str) -> None:
        self._stream.write(f"{self.line(name, text)}\n")
        self._stream.flush()

    def _colour(self, name: str) -> str:
        if name not in self._names:
            return _DIM
        return str(_COLOURS[self._names.index(name) % len(_COLOURS)])

    def _styled(self, text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self._colours else text


class Progress:
    """Decides how often a chatty process is reported to be making progress."""

    def __init__(self, interval_seconds: float = 1.0) -> None:
        self._interval, self._last = interval_seconds, 0.0

    def due(self) -> bool:
        """Return whether enough time passed since this was last true."""
        now = time.monotonic()
        if now - self._last < self._interval:
            return False
        self._last = now
        return True
