"""Runs the command line in this process, as `omni` runs it in its own."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

from omni_cli.main import run


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    status: int
    stdout: str
    stderr: str


def omni(*words: str) -> Outcome:
    """Run `omni` with the given words and return what it printed; nothing is a terminal."""
    return run_words(words)


def run_words(words: Sequence[str]) -> Outcome:
    """Run `omni` with a list of words."""
    out, err = _stream(), _stream()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = run(words)
        except SystemExit as ended:  # completion ends the process by itself
            status = int(ended.code or 0)
    return Outcome(status, _text(out), _text(err))


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()
