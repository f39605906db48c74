"""Runs the commands that documents show, so that what a reader sees is what they get.

A fenced `console` block holds commands after `$ ` and below each what it prints. Run as a module
(`make generate` does), this file writes what the commands print now.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from tests.support.command_line import run_words

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "docs/configuration.md")

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Shown:
    """A command in a document, and what the document says it prints."""

    document: str
    command: str
    output: str


def shown_commands() -> Iterator[Shown]:
    """Yield every command of every document."""
    for document in DOCUMENTS:
        for block in _BLOCK.finditer((ROOT / document).read_text()):
            for command in _COMMAND.finditer(block[1]):
                yield Shown(document, command[1], command[2])


def printed(command: str) -> str:
    """Run a command in the repository's root and return what a terminal would show."""
    program, *words = shlex.split(command.replace("\\\n", " "))
    assert program == "omni", f"only omni can be shown with its output: {command}"
    with chdir(ROOT):
        outcome = run_words(words)
    return outcome.stderr + outcome.stdout


def with_outputs(text: str) -> str:
    """Return a document with what its commands print now."""

    def block(found: re.Match[str]) -> str:
        return f"```console\n{_COMMAND.sub(command, found[1])}```"

    def command(found: re.Match[str]) -> str:
        blank = "\n" if found[2].endswith("\n\n") else ""
        return f"$ {found[1]}\n{printed(found[1])}{blank}"

    return _BLOCK.sub(block, text)


def main() -> None:
    """Write what the commands of every document print now."""
    os.environ.pop("OMP_NUM_THREADS", None)
    for document in DOCUMENTS:
        path = ROOT / document
        path.write_text(with_outputs(path.read_text()))


if __name__ == "__main__":
    main()
