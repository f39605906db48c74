"""Every field of a chat request is acted on or refused by name, over HTTP and over gRPC."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_type_hints

import pytest
from openai.types.audio import speech_create_params, transcription_create_params
from openai.types.chat import completion_create_params
from pydantic import BaseModel, ValidationError

from omni_client import ChatOptions, JsonSchema, Sampling, Tool
from omni_client.requests import chat_request as sdk_request
from omni_gateway.chat.features import PARAMS, refuse_undeclared
from omni_gateway.chat.protos import chat_request
from omni_gateway.http_api.chat_request import ChatCompletionRequest
from omni_gateway.http_api.errors import invalid_body
from omni_gateway.http_api.model import harmless_values
from omni_gateway.http_api.speech_routes import SpeechRequest
from omni_gateway.http_api.transcription_routes import TranscriptionRequest
from omni_wire.errors import InvalidRequest
from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.v1.tensor_pb2 import Tree

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
SENT: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 5,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.2,
    "min_tokens": 1,
    "stop_token_ids": [3],
    "ignore_eos": True,
    "seed": 7,
    "talker_temperature": 0.3,
    "talker_top_p": 0.8,
    "talker_top_k": 4,
    "talker_repetition_penalty": 1.2,
    "talker_max_new_tokens": 9,
    "max_tokens": 11,
    "stop": "end",
    "audio": {"voice": "ethan", "format": "wav"},
}


def test_parameters_reach_the_stages_under_their_names() -> None:
    chat = ChatCompletionRequest.model_validate({**HELLO, **SENT, "n": 2}).chat_request()
    same = {name: value for name, value in SENT.items() if name not in _RENAMED}
    assert chat.params == {
        **same,
        "max_tokens": 11,
        "stop": ["end"],
        "speaker": "ethan",
        "talker_max_tokens": 9,
    }
    assert [chat.choice(index).params["seed"] for index in range(2)] == [7, 8]


_RENAMED = ("talker_max_new_tokens", "audio", "stop", "max_tokens")


@pytest.mark.parametrize(
    ("model", "theirs"),
    [
        (ChatCompletionRequest, completion_create_params.CompletionCreateParamsBase),
        (SpeechRequest, speech_create_params.SpeechCreateParams),
        (TranscriptionRequest, transcription_create_params.TranscriptionCreateParamsBase),
    ],
)
def test_every_field_of_openai_is_known(model: type[BaseModel], theirs: type) -> None:
    assert set(get_type_hints(theirs)) <= set(model.model_fields)


REFUSED = [
    name
    for name in ChatCompletionRequest.model_fields
    if harmless_values(ChatCompletionRequest, name) is not None
]


@pytest.mark.parametrize("name", REFUSED)
def test_a_field_that_is_not_served_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValidationError) as raised:
        ChatCompletionRequest.model_validate({**HELLO, name: "surely unknown"})
    error = invalid_body(raised.value)
    assert error.details["field"] == name
    assert "not served" in error.message

    for harmless in harmless_values(ChatCompletionRequest, name) or ():
        ChatCompletionRequest.model_validate({**HELLO, name: harmless})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"stream_options": {"include_usage": True}}, ""),
        ({"max_tokens": 1, "max_completion_tokens": 2}, ""),
        ({"n": 0}, "n"),
        ({"modalities": []}, "modalities"),
        ({"modalities": ["smell"]}, "modalities[0]"),
        ({"audio": {"voice": "x", "format": "aac"}}, "audio.format"),
        ({"seed": 2**70}, "seed"),
        ({"temperature": True}, "temperature"),
        ({"messages": [{"role": "user", "content": "x", "mood": 1}]}, "messages[0].mood"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as raised:
        ChatCompletionRequest.model_validate({**HELLO, **change})
    assert invalid_body(raised.value).details.get("field", "") == field


@pytest.mark.parametrize("change", [{"choices": 17}, {"inputs": {"text": Tree()}}])
def test_grpc_refuses_by_name_too(change: dict[str, Any]) -> None:
    message = pb.Message(role="user", content=[pb.ContentPart(text="hi")])
    with pytest.raises(InvalidRequest) as raised:
        chat_request(pb.GenerateRequest(messages=[message], **change), None, {})
    assert raised.value.details["field"] in change


SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {}}}
SCHEMA_TEXT = '{"type": "object", "properties": {"b": {"type": "string"}, "a": {}}}'
FORM: dict[str, Any] = {
    "tools": [
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
        },
        {"type": "function", "function": {"name": "g"}},
    ],
    "tool_choice": {"type": "function", "function": {"name": "g"}},
    "parallel_tool_calls": False,
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
    "logprobs": True,
    "top_logprobs": 3,
    "logit_bias": {"5": -1, "7": 2.5},
}
WISHES: dict[str, Any] = {
    "tools": [
        {"name": "f", "description": "d", "parameters_json": SCHEMA_TEXT, "strict": True},
        {"name": "g"},
    ],
    "tool_choice": {"name": "g"},
    "parallel_tool_calls": False,
    "response_format": {"type": "json_schema", "schema_json": SCHEMA_TEXT},
    "logprobs": True,
    "top_logprobs": 3,
    "logit_bias": {"5": -1.0, "7": 2.5},
}


def test_the_form_of_an_answer_reaches_the_stages_the_same_from_both_apis_and_the_sdk() -> None:
    body = json.dumps({**HELLO, **FORM})
    assert ChatCompletionRequest.model_validate_json(body).chat_request().params == WISHES
    options = ChatOptions(
        tools=[Tool("f", "d", SCHEMA, strict=True), FORM["tools"][1]],
        tool_choice="g",
        parallel_tool_calls=False,
        response_format=JsonSchema(SCHEMA),
        sampling=Sampling(logprobs=True, top_logprobs=3, logit_bias={5: -1, 7: 2.5}),
    )
    assert chat_request(sdk_request("hi", options), None, {}).params == WISHES
    openai = replace(
        options,
        tools=FORM["tools"],
        tool_choice=FORM["tool_choice"],
        response_format=FORM["response_format"],
    )
    assert chat_request(sdk_request("hi", openai), None, {}).params == WISHES


@pytest.mark.parametrize(
    "nothing",
    [
        {"tools": []},
        {"tool_choice": "auto"},
        {"tool_choice": "none"},
        {"parallel_tool_calls": True},
        {"response_format": {"type": "text"}},
        {"logprobs": False, "top_logprobs": 0},
        {"logit_bias": {}},
    ],
)
def test_what_asks_for_nothing_changes_nothing(nothing: dict[str, Any]) -> None:
    body = json.dumps({**HELLO, **nothing})
    assert ChatCompletionRequest.model_validate_json(body).chat_request().params == {}


@pytest.mark.parametrize("name", FORM)
def test_a_pipeline_that_does_not_act_on_it_refuses_it_by_name(name: str) -> None:
    features = {name: feature for feature, names in PARAMS.items() for name in names}
    refuse_undeclared({name: WISHES[name]}, [features[name]])
    others = [feature for feature in PARAMS if feature != features[name]]
    if name == "parallel_tool_calls":
        return
    with pytest.raises(InvalidRequest) as raised:
        refuse_undeclared({name: WISHES[name]}, others)
    assert raised.value.details["field"] == name


def test_grpc_parameters_reach_the_stages_under_their_names() -> None:
    request = pb.GenerateRequest(
        messages=[pb.Message(role="user", content=[pb.ContentPart(text="hi")])],
        sampling=pb.SamplingParams(max_tokens=3, stop=["end"], seed=1),
        talker=pb.TalkerParams(voice="ethan", top_k=2, seed=1),
        video=pb.VideoParams(max_frames=4, use_audio=True),
    )
    chat = chat_request(request, 5.0, {})
    assert chat.params == {
        "max_tokens": 3,
        "stop": ["end"],
        "seed": 1,
        "speaker": "ethan",
        "talker_top_k": 2,
    }
    assert chat.inputs["video_max_frames"] == 4
    assert chat.inputs["use_audio_in_video"] is True
    assert chat.timeout_seconds == 5.0

    request.talker.seed = 2
    with pytest.raises(InvalidRequest, match=r"talker\.seed"):
        chat_request(request, None, {})


@pytest.mark.parametrize(
    ("media", "field"),
    [
        (pb.Media(upload_id="file"), "messages[0].content[0].upload_id"),
        (pb.Media(), "messages[0].content[0]"),
        (pb.Media(url="http://x", detail="low"), "messages[0].content[0].detail"),
    ],
)
def test_media_that_cannot_be_had_are_named(media: pb.Media, field: str) -> None:
    message = pb.Message(role="user", content=[pb.ContentPart(image=media)])
    with pytest.raises(InvalidRequest) as raised:
        chat_request(pb.GenerateRequest(messages=[message]), None, {})
    assert raised.value.details["field"] == field
