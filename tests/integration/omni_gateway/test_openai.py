"""The `openai` package, unmodified, against the gateway."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

import av
import numpy as np
import openai
import pytest
import soundfile
from openai import OpenAI

from omni_client import OmniClient
from tests.support.chat_gateway import MODEL, SAMPLE_RATE, WORD_SAMPLES, ChatGateway

PIXEL = "data:image/png;base64,iVBORw0KGgo="
SOUND = base64.b64encode(b"RIFF").decode()
SEEN_AND_HEARD: list[Any] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": PIXEL}},
            {"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}},
        ],
    }
]
ANSWER = "You said: What is this? (with 1 audio, 1 image)"
HELLO: list[Any] = [{"role": "user", "content": "hello there"}]
ALOUD: Any = {
    "model": MODEL,
    "messages": HELLO,
    "modalities": ["text", "audio"],
    "audio": {"voice": "ethan", "format": "pcm16"},
}


@pytest.fixture(scope="module")
def client(parrot: ChatGateway) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{parrot.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_a_picture_and_a_sound_go_in_and_text_and_sound_come_out(client: OpenAI) -> None:
    request = {**ALOUD, "messages": SEEN_AND_HEARD}
    completion = client.chat.completions.create(**request)

    message = completion.choices[0].message
    assert message.content == ANSWER
    assert message.audio is not None
    assert message.audio.transcript == ANSWER
    words = len(ANSWER.split())
    assert len(base64.b64decode(message.audio.data)) == 2 * WORD_SAMPLES * words
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == 3
    assert completion.usage.completion_tokens == words


def test_streamed_deltas_are_the_unstreamed_answer_and_the_sdk_s(
    client: OpenAI, parrot: ChatGateway
) -> None:
    whole = client.chat.completions.create(**ALOUD).choices[0].message
    text, audio, usage = streamed(client, ALOUD)
    with OmniClient(parrot.target) as sdk:
        own = sdk.chat(
            "hello there", modalities=["text", "audio"], voice="ethan", audio_encoding="pcm16"
        )

    assert text == whole.content == own.text == "You said: hello there"
    assert whole.audio is not None
    assert own.audio is not None
    assert audio == base64.b64decode(whole.audio.data) == own.audio.pcm16()
    assert usage.completion_tokens == 4


@pytest.mark.parametrize("encoding", ["wav", "mp3", "opus", "flac"])
def test_pieces_of_a_file_are_one_file(client: OpenAI, encoding: str) -> None:
    request = {**ALOUD, "audio": {"voice": "ethan", "format": encoding}}
    _, audio, _ = streamed(client, request)
    with av.open(io.BytesIO(audio), "r") as file:
        samples = [frame.samples * SAMPLE_RATE // frame.rate for frame in file.decode(audio=0)]
    # Codecs pad what they encode.
    assert 4 * WORD_SAMPLES <= sum(samples) < 8 * WORD_SAMPLES


@pytest.mark.parametrize("encoding", ["wav", "flac"])
def test_an_unstreamed_file_knows_its_length(client: OpenAI, encoding: str) -> None:
    request = {**ALOUD, "audio": {"voice": "ethan", "format": encoding}}
    audio = client.chat.completions.create(**request).choices[0].message.audio
    assert audio is not None
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(audio.data)))
    assert (len(samples), rate) == (4 * WORD_SAMPLES, SAMPLE_RATE)


def test_speech_alone_has_its_text_as_a_transcript(client: OpenAI) -> None:
    request = {**ALOUD, "modalities": ["audio"]}
    message = client.chat.completions.create(**request).choices[0].message
    assert message.content is None
    assert message.audio is not None
    assert message.audio.transcript == "You said: hello there"


def test_several_answers_come_side_by_side(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=HELLO, n=3)
    assert [choice.message.content for choice in whole.choices] == ["You said: hello there"] * 3
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (2, 12)

    texts = {0: "", 1: "", 2: ""}
    for chunk in client.chat.completions.create(model=MODEL, messages=HELLO, n=3, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert set(texts.values()) == {"You said: hello there"}


def test_limits_and_stops_end_an_answer(client: OpenAI) -> None:
    short = client.chat.completions.create(model=MODEL, messages=HELLO, max_completion_tokens=2)
    assert (short.choices[0].message.content, short.choices[0].finish_reason) == (
        "You said: ",
        "length",
    )
    stopped = client.chat.completions.create(model=MODEL, messages=HELLO, stop=" there")
    assert stopped.choices[0].message.content == "You said: hello"
    assert stopped.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("change", "raised", "param"),
    [
        ({"model": "other"}, openai.NotFoundError, "model"),
        ({"temperature": 5}, openai.BadRequestError, "temperature"),
        ({"logprobs": True}, openai.BadRequestError, "logprobs"),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
            openai.BadRequestError,
            "tools",
        ),
        ({"response_format": {"type": "json_object"}}, openai.BadRequestError, "response_format"),
        ({"logit_bias": {"5": 1}}, openai.BadRequestError, "logit_bias"),
        ({"logit_bias": {"five": 1}}, openai.BadRequestError, "logit_bias.five"),
        ({"logprobs": True, "top_logprobs": 21}, openai.BadRequestError, "top_logprobs"),
        ({"tool_choice": "required"}, openai.BadRequestError, "tool_choice"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
            openai.BadRequestError,
            "response_format",
        ),
        ({"tools": [{"type": "custom", "custom": {}}]}, openai.BadRequestError, "tools[0].type"),
        ({"extra_body": {"surprise": 1}}, openai.BadRequestError, "surprise"),
        ({"extra_body": {"request_id": "?" * 400}}, openai.BadRequestError, "request_id"),
        (
            {"modalities": ["audio"], "audio": {"voice": "nobody", "format": "wav"}},
            openai.BadRequestError,
            "voice",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]},
            openai.BadRequestError,
            "messages[0].content",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image_url", "image_url": {"url": "http://127.0.0.1/"}}
                        ],
                    }
                ]
            },
            openai.PermissionDeniedError,
            "messages[0].content[0].image_url",
        ),
    ],
)
def test_what_is_wrong_raises_the_package_s_own_class_and_names_the_field(
    client: OpenAI, change: dict[str, Any], raised: type[openai.APIStatusError], param: str
) -> None:
    request: dict[str, Any] = {"model": MODEL, "messages": HELLO, **change}
    with pytest.raises(raised) as caught:
        client.chat.completions.create(**request)
    assert str(caught.value.param).startswith(param)
    assert caught.value.request_id


def test_stages_tell_when_they_worked_on_an_answer(client: OpenAI) -> None:
    request: dict[str, Any] = {
        "model": MODEL,
        "messages": HELLO,
        "extra_body": {"stage_events": True},
    }
    whole: Any = client.chat.completions.create(**request).choices[0]
    assert [one["stage"] for one in whole.stages] == ["writer", "decode"]
    streamed: list[Any] = list(client.chat.completions.create(**request, stream=True))
    (told,) = [one.choices[0].stages for one in streamed if hasattr(one.choices[0], "stages")]
    assert [one["stage"] for one in told] == ["writer", "decode"]
    assert all(0 <= one["opened"] <= one["finished"] for one in told)


def test_a_stage_that_fails_is_an_error_of_the_server(client: OpenAI) -> None:
    failing: list[Any] = [{"role": "user", "content": "say (fail)"}]
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model=MODEL, messages=failing)
    assert caught.value.code == "stage_failed"
    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(model=MODEL, messages=failing, stream=True))


def test_speech_reads_a_text_aloud(client: OpenAI) -> None:
    whole = client.audio.speech.create(
        model=MODEL, input="hi", voice="chelsie", response_format="pcm"
    ).content
    with client.audio.speech.with_streaming_response.create(
        model=MODEL, input="hi", voice="chelsie", response_format="pcm"
    ) as response:
        assert b"".join(response.iter_bytes()) == whole
    other = client.audio.speech.create(
        model=MODEL, input="hi", voice="ethan", response_format="pcm"
    ).content
    assert len(np.frombuffer(whole, "<i2")) % WORD_SAMPLES == 0
    assert whole != other


def test_a_recording_is_written_down(client: OpenAI) -> None:
    file = ("a.wav", b"RIFF")
    found = client.audio.transcriptions.create(model=MODEL, file=file, language="en")
    assert found.text.endswith("Its language is en. (with 1 audio)")
    deltas = list(client.audio.transcriptions.create(model=MODEL, file=file, stream=True))
    assert deltas[-1].type == "transcript.text.done"
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.transcriptions.create(model=MODEL, file=file, response_format="srt")
    assert caught.value.param == "response_format"


def test_models_lists_the_pipeline(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def streamed(client: OpenAI, request: dict[str, Any]) -> tuple[str, bytes, Any]:
    """Return the text, the sound and the usage of a streamed answer."""
    text, audio, usage = "", b"", None
    request = {**request, "stream": True, "stream_options": {"include_usage": True}}
    for chunk in client.chat.completions.create(**request):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            piece = getattr(choice.delta, "audio", None) or {}
            audio += base64.b64decode(piece.get("data", ""))
    return text, audio, usage
