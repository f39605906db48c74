"""The examples for clients, run as their first lines say."""

from __future__ import annotations

import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chat_gateway import ChatGateway, chat_gateway
from tests.support.patience import PROGRAM_SECONDS

EXAMPLES = Path(__file__).resolve().parents[3] / "examples/client"


@pytest.fixture(scope="module")
def parrot() -> Iterator[ChatGateway]:
    with chat_gateway() as gateway:
        yield gateway


def run(example: str, folder: Path, *words: str) -> str:
    command = [sys.executable, str(EXAMPLES / example), *words]
    shown = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PROGRAM_SECONDS
    )
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


def test_asking(parrot: ChatGateway, tmp_path: Path) -> None:
    assert run("ask.py", tmp_path, parrot.target, "Who?") == (
        "You said: Who?\nanswer.wav: 0.12 s\n"
    )
    with wave.open(str(tmp_path / "answer.wav")) as file:
        assert file.getnframes() == 3 * 960


def test_streaming(parrot: ChatGateway, tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"png")
    assert run("stream.py", tmp_path, parrot.target, "picture.png") == (
        "You said: What is this? (with 1 image)\n8 tokens, 7680 samples\n"
    )


def test_several_at_once(parrot: ChatGateway, tmp_path: Path) -> None:
    shown = run("several.py", tmp_path, parrot.target, "One?", "(fail)")
    assert shown.splitlines() == [
        "One? You said: One?",
        "(fail) failed: the parrot fails as it was asked to (STAGE_FAILED)",
    ]


def test_with_the_openai_package(parrot: ChatGateway, tmp_path: Path) -> None:
    shown = run("with_openai.py", tmp_path, f"{parrot.url}/v1", "Who?")
    assert shown == f"You said: Who?\nanswer.wav: {44 + 2 * 3 * 960} bytes\n"
