"""What a user reads: every line says whose it is, and a failure brings its last words."""

import io

from omni_runtime.launcher.display import LineDisplay


def test_lines_are_prefixed_and_aligned() -> None:
    stream = io.StringIO()
    display = LineDisplay(stream, colours=False)
    display.begin(["gateway", "talker@r0"])
    display.log("gateway", "listening")
    display.log("talker@r0", "loading")
    display.say("talker@r0", "ready")
    display.say("", "stopping")
    assert stream.getvalue().splitlines() == [
        "gateway   | listening",
        "talker@r0 | loading",
        "omni      | talker@r0: ready",
        "omni      | stopping",
    ]


def test_a_failure_shows_the_reason_and_the_last_lines() -> None:
    stream = io.StringIO()
    display = LineDisplay(stream, colours=False)
    display.begin(["talker"])
    display.failure("talker", "exit code 3", ["loading", "no weights"])
    display.failure("talker", "killed by SIGKILL", [])
    assert stream.getvalue().splitlines() == [
        "omni   | talker ended: exit code 3",
        "omni   |   last lines of talker:",
        "omni   |     loading",
        "omni   |     no weights",
        "omni   | talker ended: killed by SIGKILL",
        "omni   |   talker wrote nothing",
    ]


def test_processes_have_colours_of_their_own_on_a_terminal() -> None:
    display = LineDisplay(io.StringIO(), colours=True)
    display.begin(["front", "back"])
    colours = {display.line(name, "x").partition("m")[0] for name in ("front", "back", "omni")}
    assert len(colours) == 3


def test_ready_says_where_and_after_how_long() -> None:
    stream = io.StringIO()
    display = LineDisplay(stream, colours=False)
    display.ready(["unix:/run/gateway.sock", "127.0.0.1:8000"], 1.25)
    assert stream.getvalue() == (
        "omni | ready in 1.2 s; the gateway listens on unix:/run/gateway.sock and 127.0.0.1:8000\n"
    )
