"""`omni chat` against the chat example, which knows of no tokens and no codes."""

from __future__ import annotations

import base64
import json
import re
import wave
from pathlib import Path

import numpy as np

from tests.support.chat_gateway import WORD_SAMPLES, ChatGateway
from tests.support.command_line import omni


def test_text_streams_and_speech_is_written(parrot: ChatGateway, tmp_path: Path) -> None:
    file = tmp_path / "said.wav"
    done = omni("chat", "Who is there?", "--target", parrot.target, "--wav", str(file))
    assert (done.status, done.stderr) == (0, "")
    assert re.fullmatch(
        r"You said: Who is there\?\n\n"
        r"\(first token after \d+\.\d\d s, first sound after \d+\.\d\d s, "
        rf"0\.2 s of speech in {re.escape(str(file))}\)\n",
        done.stdout,
    )
    with wave.open(str(file)) as written:
        assert written.getnframes() == 5 * WORD_SAMPLES


def test_text_only_writes_no_file(parrot: ChatGateway, tmp_path: Path) -> None:
    file = tmp_path / "said.wav"
    done = omni("chat", "Hm?", "--text-only", "--target", parrot.target, "--wav", str(file))
    assert re.fullmatch(r"You said: Hm\?\n\n\(first token after \d+\.\d\d s\)\n", done.stdout)
    assert not file.exists()


def test_json_has_null_for_what_the_pipeline_lacks(parrot: ChatGateway, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"png")
    done = omni("chat", "See?", "--image", str(picture), "--json", "--target", parrot.target)
    found = json.loads(done.stdout)
    assert found["text"] == "You said: See? (with 1 image)"
    assert found["finish_reason"] == "stop"
    assert found["usage"]["completion_tokens"] == 6
    samples = np.frombuffer(base64.b64decode(found["wav"]), "<f4")
    assert (len(samples), found["sample_rate"]) == (6 * WORD_SAMPLES, 24_000)
    lacking = {name for name, value in found.items() if value is None}
    assert lacking == {"token_ids", "codec_codes", "steps_to_first_audio"}
    assert set(found["timeline"]) == {"writer", "decode", "code2wav"}


def test_what_the_pipeline_refuses_is_an_error(parrot: ChatGateway) -> None:
    done = omni("chat", "Hm?", "--param", "speaker=nobody", "--target", parrot.target)
    assert done.status == 1
    assert "nobody" in done.stderr
    assert "ethan" in done.stderr


def test_a_file_that_cannot_be_read_is_named(parrot: ChatGateway) -> None:
    done = omni("chat", "Hm?", "--image", "/nowhere.png", "--target", parrot.target)
    assert (done.status, done.stderr) == (1, "Error: /nowhere.png: No such file or directory\n")
