"""A local run on a terminal: log lines scroll, a table of the processes stays below until ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from omni_runtime.launcher.display import LineDisplay
from omni_runtime.launcher.supervision_events import Phase

_MARKS = {
    Phase.WAITING: Text("·", "dim"),
    Phase.READY: Text("✓", "green"),
    Phase.STOPPING: Text("…", "yellow"),
    Phase.RESTARTING: Text("↻", "yellow"),
    Phase.ENDED: Text("✗", "red"),
}
_REFRESHES_PER_SECOND = 8


class LiveDisplay(LineDisplay):
    """`LineDisplay` with a live table while anything is not ready yet."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream, colours=True)
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._spinner = Spinner("dots", style="cyan")
        self._shown: dict[str, tuple[Phase, str]] = {}
        self._live: Live | None = None

    def begin(self, names: Sequence[str]) -> None:
        super().begin(names)
        self._shown = dict.fromkeys(names, (Phase.WAITING, ""))
        self._live = Live(
            get_renderable=self._table,
            console=self._console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
            transient=True,
        )
        self._live.start()

    def phase(self, name: str, phase: Phase, status: str) -> None:
        self._shown[name] = (phase, status)

    def ready(self, addresses: Sequence[str], seconds: float) -> None:
        self._stop_live()
        super().ready(addresses, seconds)

    def close(self) -> None:
        self._stop_live()
        super().close()

    def _write(self, name: str, text: str) -> None:
        if self._live is None:
            super()._write(name, text)
            return
        # The console moves the table below what it prints.
        self._console.print(Text.from_ansi(self.line(name, text)))

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 1))
        for name, (phase, status) in self._shown.items():
            mark = self._spinner if phase is Phase.STARTING else _MARKS[phase]
            table.add_row(mark, Text(name), Text(phase, "dim"), Text(status, "dim"))
        return table
