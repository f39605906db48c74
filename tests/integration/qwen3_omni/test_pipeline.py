"""The whole speech pipeline under `omni up` answers as transformers does, in all its outputs."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import OpenAI

from omni_cli.chat_answer import ChatAnswer
from omni_wire.errors import ServiceError
from tests.support.oracle import PROMPTS, Answer, Oracle, Settings
from tests.support.speech_pipeline import SpeechPipeline, speech_pipeline

TOLERANCE = 1e-5
READERS = {"thinker", "talker_ar", "decode", "code2wav"}

# Starting the pipeline takes most of it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def pipeline(checkpoint: Path) -> Iterator[SpeechPipeline]:
    with speech_pipeline(checkpoint) as pipeline:
        yield pipeline


def assert_same(answer: ChatAnswer, expected: Answer) -> None:
    assert answer.token_ids == expected.text_ids.tolist()
    assert answer.codec_codes == expected.codes.tolist()
    assert answer.samples.shape == expected.wav.shape
    assert np.abs(answer.samples - expected.wav).max() <= TOLERANCE


@pytest.mark.parametrize("name", PROMPTS)
def test_an_answer_is_transformers_own(pipeline: SpeechPipeline, oracle: Oracle, name: str) -> None:
    expected = oracle.answer(PROMPTS[name])
    expected.require_variety()
    answer = pipeline.ask(PROMPTS[name])
    assert_same(answer, expected)
    tokens = [token for token in answer.token_ids if token != 1026]
    assert answer.text == oracle.processor.tokenizer.decode(tokens, skip_special_tokens=True)


def test_eight_mixed_requests_at_once_are_answered_as_each_alone(
    pipeline: SpeechPipeline, oracle: Oracle
) -> None:
    names = [*PROMPTS, "text"]
    answers = pipeline.ask_together([PROMPTS[name] for name in names])
    for name, answer in zip(names, answers, strict=True):
        assert_same(answer, oracle.answer(PROMPTS[name]))


def test_openai_s_api_and_the_sdk_give_the_same_answer(
    pipeline: SpeechPipeline, oracle: Oracle
) -> None:
    prompt, settings = PROMPTS["turns"], Settings()
    expected = oracle.answer(prompt)
    request: dict[str, Any] = {
        "messages": prompt.openai_messages(),
        "modalities": ["text", "audio"],
        "audio": {"voice": settings.speaker, "format": "pcm16"},
        "max_completion_tokens": settings.max_tokens,
        "temperature": 0,
        "extra_body": {
            "talker_temperature": 0,
            "talker_repetition_penalty": settings.repetition_penalty,
            "talker_max_new_tokens": settings.max_frames,
        },
    }
    with OpenAI(base_url=f"{pipeline.url}/v1", api_key="none", timeout=100) as client:
        model = client.models.list().data[0].id
        message = client.chat.completions.create(model=model, **request).choices[0].message
    assert message.audio is not None
    samples = np.frombuffer(base64.b64decode(message.audio.data), "<i2")
    np.testing.assert_allclose(samples / 32767, expected.wav, atol=1 / 32767)
    assert message.content == pipeline.ask(prompt).text


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(Settings(max_tokens=1, max_frames=8), id="one token"),
        pytest.param(Settings(max_tokens=24, max_frames=3), id="speech cut short"),
        pytest.param(Settings(repetition_penalty=1.05), id="penalty"),
        pytest.param(Settings(speaker="Chelsie"), id="another speaker"),
    ],
)
def test_settings_change_the_answer_as_in_transformers(
    pipeline: SpeechPipeline, oracle: Oracle, settings: Settings
) -> None:
    assert_same(pipeline.ask(PROMPTS["image"], settings), oracle.answer(PROMPTS["image"], settings))


def test_a_text_request_touches_neither_talker_nor_code2wav(pipeline: SpeechPipeline) -> None:
    answer = pipeline.ask(PROMPTS["audio"], modalities=["text"])
    assert answer.timeline.keys() == {"preprocessing", "audio_encoder", "thinker", "decode"}
    assert not len(answer.samples)


def test_speech_is_made_unless_only_text_is_wanted(pipeline: SpeechPipeline) -> None:
    for modalities in ([], ["text", "audio"]):
        answer = pipeline.ask(PROMPTS["text"], modalities=modalities)
        assert answer.timeline.keys() >= READERS
        assert len(answer.samples)


def test_the_first_sound_waits_for_one_frame(pipeline: SpeechPipeline) -> None:
    for answer in pipeline.ask_together([PROMPTS["text"]] * 4):
        assert answer.steps_to_first_audio["talker_frames"] == 1


def test_a_seed_gives_the_same_answer_again(pipeline: SpeechPipeline) -> None:
    sampled = {"temperature": 1.0, "talker_temperature": 0.9, "seed": 11}
    first, again = (pipeline.ask(PROMPTS["text"], params=sampled) for _ in range(2))
    assert (first.token_ids, first.codec_codes) == (again.token_ids, again.codec_codes)
    assert first.token_ids != pipeline.ask(PROMPTS["text"]).token_ids


def test_a_stop_string_ends_text_and_speech(pipeline: SpeechPipeline) -> None:
    text = pipeline.ask(PROMPTS["text"]).text
    stop = text[len(text) // 2 :][:6]
    answer = pipeline.ask(PROMPTS["text"], params={"stop": [stop]})
    assert answer.text == text.partition(stop)[0]
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "INVALID_MEDIA"), ("http://127.0.0.1/x", "MEDIA_REFUSED"), ("/etc/x", "MEDIA_REFUSED")],
)
def test_media_that_cannot_be_used_fail_their_request_by_type(
    pipeline: SpeechPipeline, content: bytes | str, reason: str
) -> None:
    inputs: dict[str, Any] = {
        "messages": [{"role": "user", "content": "What?"}],
        "images": [content],
    }
    with pytest.raises(ServiceError) as failure:
        pipeline.send(inputs, {})
    assert failure.value.info.reason == reason
    assert failure.value.details["field"] == "images[0]"
    assert len(pipeline.ask(PROMPTS["text"]).token_ids) == 24
