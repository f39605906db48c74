"""What `omni chat` makes of the events of an answer, whatever the pipeline tells."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from omni_cli.chat_answer import ChatAnswer, ChatProgress
from omni_client.events import Event, StageOutput, Started

USAGE = {"prompt_tokens": 2, "completion_tokens": 1, "cached_tokens": 0}
FIELDS = [
    *("text", "token_ids", "codec_codes", "wav", "sample_rate", "finish_reason", "usage"),
    *("seconds_to_first_text", "seconds_to_first_audio", "steps_to_first_audio", "timeline"),
]


def text(words: bytes) -> Event:
    columns: Any = {"text": np.frombuffer(words, np.uint8), "bytes": len(words), "tokens": 1}
    return StageOutput("decode", "text", columns, final=False)


def sound(*samples: float) -> Event:
    columns: Any = {"pcm": np.array(samples, np.float32), "offset": 0}
    return StageOutput("code2wav", "audio", columns, final=False)


def end(stage: str, result: Mapping[str, Any]) -> Event:
    data: Any = dict(result)
    return StageOutput(stage, "", data, final=True)


def read(*events: Event, shown: io.StringIO | None = None) -> ChatAnswer:
    return ChatProgress(shown).read([Started("r", "m"), *events])


PLAIN_END = end("decode", {"text": "hé", "finish_reason": "stop", "usage": USAGE})


def test_characters_cut_between_pieces_are_shown_whole() -> None:
    shown = io.StringIO()
    answer = read(text(b"h\xc3"), text(b"\xa9"), PLAIN_END, shown=shown)
    assert shown.getvalue() == answer.text == "hé"
    assert 0 < answer.first_text < 10


def test_a_pipeline_that_only_writes_leaves_the_rest_null() -> None:
    found = read(text(b"h\xc3\xa9"), PLAIN_END).as_json()
    assert list(found) == FIELDS
    assert found["text"] == "hé"
    assert found["usage"] == USAGE
    assert found["seconds_to_first_text"] > 0
    told = {"text", "finish_reason", "usage", "seconds_to_first_text"}
    assert {name for name, value in found.items() if value is not None} == told


def test_everything_that_a_speech_pipeline_tells_is_there() -> None:
    worked = {"opened": 2.0, "ended": 3.0}
    answer = read(
        text(b"a"),
        sound(0.5, -0.5),
        sound(0.25),
        end("decode", {"text": "a", "token_ids": [7], "finish_reason": "length", "usage": USAGE}),
        end(
            "code2wav",
            {
                "sample_rate": 24_000,
                "codes": [[1, 2], [3, 4]],
                "first_frames": 1,
                "start_tokens": 1,
                "timeline": {"talker_ar": worked, "thinker": {**worked, "opened": 1.0}},
            },
        ),
    )
    found = answer.as_json()
    assert [name for name, value in found.items() if value is None] == []
    assert np.frombuffer(base64.b64decode(found["wav"]), "<f4").tolist() == [0.5, -0.5, 0.25]
    assert found["codec_codes"] == [[1, 2], [3, 4]]
    assert found["steps_to_first_audio"] == {"talker_frames": 1, "thinker_tokens": 1}
    assert list(found["timeline"]) == ["thinker", "talker_ar"]


def test_speech_without_a_sample_is_empty_and_not_null() -> None:
    found = read(PLAIN_END, end("code2wav", {"sample_rate": 16_000})).as_json()
    assert (found["wav"], found["sample_rate"]) == ("", 16_000)
    assert found["seconds_to_first_audio"] is None


@pytest.mark.parametrize("data", [{}, {"message": "hi"}, [1, 2], None])
def test_a_pipeline_that_does_not_chat_tells_nothing(data: Any) -> None:
    found = read(StageOutput("echo", "", data, final=True)).as_json()
    assert set(found.values()) == {None}
