"""How the command ends: quietly, with a status, and never with a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from omni_cli import main, output
from tests.support.command_line import omni, run_words

OMNI = [sys.executable, "-c", "from omni_cli.main import main; main()"]
HEAVY = ("torch", "transformers", "sglang", "kubernetes", "grpc", "numpy")


def test_the_version_is_that_of_the_distribution() -> None:
    assert omni("--version").stdout == f"omnipipe {version('omnipipe')}\n"


@pytest.mark.parametrize("words", [[], ["config"]])
def test_without_a_command_help_is_shown(words: list[str]) -> None:
    outcome = run_words(words)
    assert outcome.status == 2
    assert outcome.stderr.startswith("Usage: omni")


@pytest.mark.parametrize("words", [["--help"], ["config", "-h"], ["plan", "--help"]])
def test_help_is_plain_where_it_is_no_terminal(words: list[str]) -> None:
    outcome = run_words(words)
    assert outcome.status == 0
    assert outcome.stdout.startswith("Usage: omni")
    assert outcome.stdout.isascii()


def test_a_misspelt_command_is_suggested() -> None:
    outcome = omni("confg")
    assert outcome.status == 2
    assert "'config'" in outcome.stderr


def test_help_imports_no_command_and_nothing_heavy() -> None:
    code = (
        "import sys; from omni_cli.main import run; run(['--help'])\n"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stderr.split()
    tops = {name.partition(".")[0] for name in loaded}
    assert tops.isdisjoint({*HEAVY, "pydantic", "rich", "yaml", "omni_models"})


def test_a_plan_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from omni_cli.main import run\n"
        "run(['plan', '--variant', 'speech', '--model-path', 'm/m'])\n"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stderr.split()
    assert {name.partition(".")[0] for name in loaded}.isdisjoint(HEAVY)


def test_a_reader_that_leaves_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        ended = subprocess.run(
            [*OMNI, "pipelines"], stdout=gone, stderr=subprocess.PIPE, check=False
        )
    assert ended.stderr == b""


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_lines: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("omni_cli.pipelines_command.print_lines", interrupted)
    outcome = omni("pipelines")
    assert outcome.status == 128 + signal.SIGINT
    assert outcome.stderr == ""


@pytest.mark.parametrize(
    ("environment", "decorated"),
    [
        pytest.param({}, True, id="a terminal"),
        pytest.param({"NO_COLOR": "1"}, False, id="NO_COLOR"),
        pytest.param({"TERM": "dumb"}, False, id="a dumb one"),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    environment: dict[str, str],
    decorated: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    long = "stages.vocoder.factory.max_batch_size"
    output.print_lines([(output.Span(long, "bold"), output.Span(" = 32"))])
    printed = capsys.readouterr().out
    assert ("\x1b[" in printed) is decorated
    assert printed.count("\n") == 1


WORDS = st.one_of(
    st.sampled_from(
        [
            "config",
            "plan",
            "pipelines",
            "resolve",
            "explain",
            "export",
            "--config",
            "tts.yaml",
            "-f",
            "--show",
            "diff",
            "-o",
            "json",
            "--vocoder.gpu",
            "vocoder.factory.x=1",
            "--mem-fraction-static",
            "0.5",
            "--variant",
            "text",
            "--model-path",
            "org/m",
            "--text-only",
            "--",
            "-",
            "--=",
            "=",
            "[1, {",
            "{}",
            '--vocoder.env."A.B"',
            "--processes.pipeline.num_replicas",
            "2",
            "none",
            "--devices",
            "--gpu-memory",
            "--mps",
            "on",
        ]
    ),
    st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=12),
    st.text("abcdefgpu._-=[]{},:\"'0123456789 ", min_size=1, max_size=16),
)
COMMANDS = st.sampled_from([["config", "resolve"], ["config", "explain"], ["plan"], []])


@given(command=COMMANDS, words=st.lists(WORDS, max_size=8))
@example(command=["config", "resolve"], words=["-f", "tts.yaml", "--vocoder.factory.x", "inf"])
@example(command=["plan"], words=["-f", "tts.yaml", "--vocoder.factory.x.y", "1"])
@example(command=["plan"], words=["-f", "tts.yaml", "--vocoder.gpu", "1__0"])
@example(command=["plan"], words=["-f", "tts.yaml", "--tts_engine.engine.kv_cache_bytes", "²"])
@example(
    command=["plan"],
    words=["-f", "tts.yaml", "--tts_engine.engine.mem_fraction_static", "9" * 5000],
)
@example(command=["plan"], words=["-f", "tts.yaml", "--vocoder.factory.x", "[" * 5000])
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_whatever_is_typed_ends_with_a_status(
    command: list[str], words: list[str], folder: Path
) -> None:
    outcome = run_words([*command, *words])
    assert outcome.status in (0, 2)
    assert outcome.status == 0 or outcome.stderr


def test_every_command_of_the_table_exists() -> None:
    for name in main.COMMANDS:
        assert omni(name, "--help").status == 0
