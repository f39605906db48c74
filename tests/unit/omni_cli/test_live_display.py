"""The table below the log while processes start."""

import io

from omni_cli.live_display import LiveDisplay
from omni_runtime.launcher.supervision_events import Phase


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_table_shows_who_is_ready_and_what_the_others_do() -> None:
    terminal = Terminal()
    display = LiveDisplay(terminal)
    display.begin(["gateway", "talker"])
    display.phase("gateway", Phase.READY, "")
    display.phase("talker", Phase.STARTING, "loading weights")
    display.log("talker", "half of them")
    display.close()
    shown = terminal.getvalue()
    assert "✓" in shown
    assert "loading weights" in shown
    assert "half of them" in shown


def test_the_table_is_gone_once_everything_is_ready() -> None:
    terminal = Terminal()
    display = LiveDisplay(terminal)
    display.begin(["gateway"])
    display.ready(["127.0.0.1:8000"], 1.0)
    terminal.truncate(0)
    display.log("gateway", "served a request")
    display.close()
    assert "\033[2K" not in terminal.getvalue(), "nothing is redrawn any more"
    assert terminal.getvalue().count("\n") == 1
