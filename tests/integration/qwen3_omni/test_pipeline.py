"""The whole speech pipeline under `omni up` answers as transformers does, in all its outputs."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import wave
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import OpenAI
from PIL import Image

from omni_cli.chat_answer import ChatAnswer
from omni_client import OmniClient, Sampling, StageOutput, Voice, audio, image
from omni_models.media.limits import Deadline, MediaLimits
from omni_models.media.sounds import decode_sound
from omni_wire.errors import ServiceError
from tests.support import media
from tests.support.light_client import documented_example, light_client
from tests.support.oracle import Oracle
from tests.support.patience import PROGRAM_SECONDS
from tests.support.prompts import PROMPTS, Answer, Prompt, Settings, user
from tests.support.speech_pipeline import SpeechPipeline, greedy

TOLERANCE = 1e-5
STEPS = "omni_stage_step_duration_seconds_count"
IN_FLIGHT = "omni_stage_in_flight_requests"
FREE_TOKENS = "omni_engine_cache_free_tokens"
READERS = {"thinker", "talker_ar", "decode", "code2wav"}
ENCODING = {"preprocessing", "image_encoder", "audio_encoder"}

# Starting the pipeline takes most of it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


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
    before = pipeline.measured(STEPS)
    for prompt in PROMPTS.values():
        answer = pipeline.ask(prompt, modalities=["text"])
        assert len(answer.token_ids) == 24
        assert not len(answer.samples)
    worked = {stage for stage, steps in pipeline.measured(STEPS).items() if steps > before[stage]}
    assert worked == {"preprocessing", "image_encoder", "audio_encoder", "thinker", "decode"}


def test_speech_is_made_unless_only_text_is_wanted(pipeline: SpeechPipeline) -> None:
    for modalities in ([], ["text", "audio"]):
        answer = pipeline.ask(PROMPTS["text"], modalities=modalities)
        assert answer.timeline.keys() >= READERS
        assert len(answer.samples)


@pytest.mark.parametrize("count", [1, 16])
def test_the_first_sound_waits_for_one_token_and_one_frame(
    pipeline: SpeechPipeline, count: int
) -> None:
    names = [list(PROMPTS)[number % len(PROMPTS)] for number in range(count)]
    for answer in pipeline.ask_together([PROMPTS[name] for name in names]):
        assert answer.steps_to_first_audio == {"talker_frames": 1, "thinker_tokens": 1}


@pytest.mark.parity
@pytest.mark.parametrize("frames", [300, 420])
def test_long_speech_is_transformers(pipeline: SpeechPipeline, oracle: Oracle, frames: int) -> None:
    settings = Settings(max_frames=frames)
    expected = oracle.answer(PROMPTS["text"], settings)
    assert expected.codes.shape[1] == frames
    assert_same(pipeline.ask(PROMPTS["text"], settings), expected)


@pytest.mark.parametrize("until", ["text", "audio"])
def test_who_leaves_frees_all_stages_at_once(
    pipeline: SpeechPipeline, oracle: Oracle, until: str
) -> None:
    free = pipeline.measured(FREE_TOKENS)
    assert free.keys() == {"thinker", "talker_ar"}
    endless = greedy(Settings(max_tokens=1500, max_frames=1500)) | {"ignore_eos": True}
    request: dict[str, Any] = {"messages": PROMPTS["image"].openai_messages()}
    with (
        OmniClient(pipeline.address, timeout_seconds=100) as client,
        client.generate(request, params=endless, stage_events=True) as events,
    ):
        next(e for e in events if isinstance(e, StageOutput) and e.modality == until)
        assert pipeline.measured(IN_FLIGHT)["thinker"] == 1
        neighbour = pipeline.ask(PROMPTS["turns"])
    while any(pipeline.measured(IN_FLIGHT).values()):
        pass
    while pipeline.measured(FREE_TOKENS) != free:
        pass
    assert_same(neighbour, oracle.answer(PROMPTS["turns"]))
    # Nobody goes on with what nobody hears: a whole other answer later all have done its steps.
    steps = pipeline.measured(STEPS)
    assert_same(pipeline.ask(PROMPTS["text"]), oracle.answer(PROMPTS["text"]))
    more = {stage: count - steps[stage] for stage, count in pipeline.measured(STEPS).items()}
    assert more["talker_ar"] <= 24 + 1
    assert more["code2wav"] <= 24 + 1


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


@pytest.mark.parametrize("samples", [np.zeros(16_000, np.float32), media.sound(1.0)[::-1].copy()])
def test_a_sound_is_heard_whatever_is_in_it(
    pipeline: SpeechPipeline, oracle: Oracle, samples: media.Samples
) -> None:
    prompt = Prompt((user("audio", "What do you hear?"),), audios=(samples,))
    assert_same(pipeline.ask(prompt), oracle.answer(prompt))


def test_an_mp3_that_breaks_off_is_heard_up_to_there(
    pipeline: SpeechPipeline, oracle: Oracle
) -> None:
    whole = media.mp3(media.sound(2.0))
    half = whole[: len(whole) // 2]
    heard = decode_sound(half, media.SAMPLE_RATE, "part", MediaLimits(), Deadline(60))
    prompt = Prompt((user("audio", "What do you hear?"),), audios=(heard,))
    inputs: dict[str, Any] = {
        "messages": [{"role": "user", "content": "What do you hear?"}],
        "audios": [half],
    }
    assert_same(pipeline.send(inputs, greedy(Settings())), oracle.answer(prompt))


def test_an_answer_without_a_spoken_token_is_empty(pipeline: SpeechPipeline) -> None:
    first = pipeline.ask(PROMPTS["image"]).token_ids[0]
    answer = pipeline.ask(PROMPTS["image"], params={"stop_token_ids": [first]})
    assert (answer.text, answer.finish_reason) == ("", "stop")
    assert not len(answer.samples)
    assert answer.codec_codes == []
    assert answer.timeline.keys() >= READERS


def hundred_megapixels() -> bytes:
    buffer = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(buffer, "PNG")
    return buffer.getvalue()


BAD_MEDIA: Mapping[str, tuple[str, Callable[[], bytes | str], str]] = {
    "0-byte picture": ("images", lambda: b"", "INVALID_MEDIA"),
    "picture of 100 megapixels": ("images", hundred_megapixels, "MEDIA_TOO_LARGE"),
    "0-byte sound": ("audios", lambda: b"", "INVALID_MEDIA"),
    "sound without samples": ("audios", lambda: media.wav(media.sound())[:44], "INVALID_MEDIA"),
    "less than a frame of mp3": ("audios", lambda: media.mp3(media.sound())[:60], "INVALID_MEDIA"),
    "private address": ("images", lambda: "http://127.0.0.1/x", "MEDIA_REFUSED"),
    "file of the host": ("images", lambda: "/etc/x", "MEDIA_REFUSED"),
}


@pytest.mark.parametrize(("field", "content", "reason"), BAD_MEDIA.values(), ids=BAD_MEDIA)
def test_media_that_cannot_be_used_fail_their_request_by_type(
    pipeline: SpeechPipeline, field: str, content: Callable[[], bytes | str], reason: str
) -> None:
    inputs: dict[str, Any] = {
        "messages": [{"role": "user", "content": "What?"}],
        field: [content()],
    }
    with pytest.raises(ServiceError) as failure:
        pipeline.send(inputs, {})
    assert failure.value.info.reason == reason
    assert failure.value.details["field"] == f"{field}[0]"


def test_ten_minutes_of_sound_are_refused_where_the_context_is_shorter(
    pipeline: SpeechPipeline,
) -> None:
    sound = media.wav(np.zeros(600 * 8000, np.float32), rate=8000)
    inputs: dict[str, Any] = {
        "messages": [{"role": "user", "content": "What?"}],
        "audios": [sound],
    }
    with pytest.raises(ServiceError, match="tokens") as failure:
        pipeline.send(inputs, {})
    assert failure.value.info.reason == "MEDIA_TOO_LARGE"
    assert len(pipeline.ask(PROMPTS["text"]).token_ids) == 24


def test_the_documents_program_runs_with_the_client_alone(
    pipeline: SpeechPipeline, tmp_path: Path
) -> None:
    python = light_client(tmp_path / "venv")
    (tmp_path / "cat.png").write_bytes(media.png(media.picture()))
    program = documented_example(pipeline.address)
    shown = subprocess.run(
        [python, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.strip()
    with wave.open(str(tmp_path / "answer.wav")) as file:
        assert file.getframerate() == 24_000
        assert file.getnframes() > 0


def test_trace_shows_what_every_stage_did(pipeline: SpeechPipeline) -> None:
    with OmniClient(pipeline.address, timeout_seconds=100) as client:
        answer = client.chat(
            ["Hello", image(media.png(media.picture())), audio(media.wav(media.sound()))],
            sampling=Sampling(max_tokens=4),
            voice=Voice(max_frames=4),
            stage_events=True,
        )
    shown = _omni("trace", answer.request_id, "--gateway", pipeline.url).splitlines()
    assert shown[0].split()[:2] == [answer.request_id, "completed"]
    lanes = {line.split()[0] for line in shown[1:] if line.strip()}
    assert {one.stage for one in answer.stages} == READERS | ENCODING
    assert lanes >= READERS | ENCODING
    assert answer.request_id in _omni("trace", "--gateway", pipeline.url)


def test_the_doctor_finds_the_run_ready(pipeline: SpeechPipeline) -> None:
    found = json.loads(_omni("doctor", "--output", "json", status=None))["findings"]
    runs = [one["text"] for one in found if one["area"] == "pipelines"]
    assert any("is ready, 7 stages" in text for text in runs), runs


def _omni(*words: str, status: int | None = 0) -> str:
    """Run a command of `omni`; returns what it shows."""
    command = [str(Path(sys.executable).with_name("omni")), *words]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_SECONDS)
    assert status is None or shown.returncode == status, shown.stderr
    return shown.stdout
