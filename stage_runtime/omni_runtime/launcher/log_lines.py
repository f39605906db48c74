"""The output of a process as lines: read as it comes, the last ones kept for a post-mortem."""

from __future__ import annotations

from collections import deque

MAX_LINE_BYTES = 8192
KEPT_LINES = 20


class LineSplitter:
    """Cuts a byte stream into lines.

    A line without an end is cut at `MAX_LINE_BYTES`, so that a process that never ends one costs no
    memory. A carriage return ends a line too: progress bars redraw themselves with it.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Take in bytes and return the lines they complete, decoded, without blank ones."""
        *complete, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        while len(self._rest) > MAX_LINE_BYTES:
            complete.append(self._rest[:MAX_LINE_BYTES])
            self._rest = self._rest[MAX_LINE_BYTES:]
        return [text for line in complete if (text := _text(line))]

    def close(self) -> list[str]:
        """Return what is left when the stream ended without a line end."""
        text, self._rest = _text(self._rest), b""
        return [text] if text else []


class LastLines:
    """The last lines of a process, whatever it wrote before."""

    def __init__(self, count: int = KEPT_LINES) -> None:
        self._lines: deque[str] = deque(maxlen=count)

    def add(self, line: str) -> None:
        """Keep a line, dropping the oldest when full."""
        self._lines.append(line)

    def clear(self) -> None:
        """Forget the lines of an earlier attempt."""
        self._lines.clear()

    @property
    def lines(self) -> tuple[str, ...]:
        """The kept lines, oldest first."""
        return tuple(self._lines)


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip()
