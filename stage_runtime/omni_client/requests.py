"""A request as the gateway takes it, built from what an application writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from omni_client.content import Messages, message_protos
from omni_client.tools import (
    ResponseFormat,
    ToolLike,
    choice_proto,
    format_proto,
    tool_protos,
)
from omni_wire.errors import InvalidRequest
from omni_wire.messages import Tree
from omni_wire.trees import to_proto
from omni_wire.v1 import gateway_pb2 as pb

READ_ALOUD = "Read the following text aloud, word for word, and say nothing else:\n\n"
"""How a model that chats is asked to speak a given text."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen; a field left null takes the stage's default.

    Attributes:
        temperature: 0 is greedy.
        max_tokens: most tokens to generate.
        stop: texts that end the answer and are not part of it.
        logit_bias: added to logits, by token id; from -100 to 100.
        logprobs: tell how likely each token was.
        top_logprobs: so many of the likeliest tokens with each; needs `logprobs`.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    seed: int | None = None
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: bool | None = None
    top_logprobs: int | None = None

    def proto(self) -> pb.SamplingParams:
        """Return the fields that are set."""
        return pb.SamplingParams(**_set_fields(self))


@dataclass(frozen=True, slots=True)
class Voice:
    """How speech is made; a field left null takes the model's default.

    Attributes:
        name: speaker, such as `Ethan`.
        max_frames: most speech frames, 12.5 of which make a second.
    """

    name: str = ""
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repetition_penalty: float | None = None
    max_frames: int | None = None
    seed: int | None = None

    def proto(self) -> pb.TalkerParams:
        """Return the fields that are set."""
        fields = _set_fields(replace(self, name="", max_frames=None))
        if self.max_frames is not None:
            fields["max_tokens"] = self.max_frames
        return pb.TalkerParams(voice=self.name, **fields)


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What a chat request says beside its messages.

    Attributes:
        modalities: `text`, `audio`, or both; empty for the model's default.
        audio_encoding: `pcm16` or `float32` samples, or a file as `wav`, `mp3`, `opus`, `flac`.
        timeout_seconds: time for the whole request; null for the client's default.
        stage_events: also report when stages begin and end their work.
        params: further parameters by name.
        stage_sampling: how single stages draw, by their names, over `sampling`.
        stage_params: other parameters of single stages, likewise.
        tools: functions the model may ask to call; not beside speech.
        tool_choice: `auto`, `none`, `required`, or the name of the function that must be called.
        parallel_tool_calls: whether an answer may hold several calls; null means it may.
        response_format: `text`, `json_object` or a `JsonSchema`; not beside tools.
    """

    model: str = ""
    modalities: Sequence[str] = ()
    sampling: Sampling = field(default_factory=Sampling)
    voice: Voice | str = ""
    audio_encoding: str = "float32"
    timeout_seconds: float | None = None
    request_id: str = ""
    stage_events: bool = False
    choices: int = 1
    params: Mapping[str, Tree] = field(default_factory=dict)
    stage_sampling: Mapping[str, Sampling] = field(default_factory=dict)
    stage_params: Mapping[str, Mapping[str, Tree]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    tools: Sequence[ToolLike] = ()
    tool_choice: str | Mapping[str, Any] = ""
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat = ""


class ChatArguments(TypedDict, total=False):
    """The fields of `ChatOptions`, given by name."""

    model: str
    modalities: Sequence[str]
    sampling: Sampling
    voice: Voice | str
    audio_encoding: str
    timeout_seconds: float | None
    request_id: str
    stage_events: bool
    choices: int
    params: Mapping[str, Tree]
    stage_sampling: Mapping[str, Sampling]
    stage_params: Mapping[str, Mapping[str, Tree]]
    labels: Mapping[str, str]
    tools: Sequence[ToolLike]
    tool_choice: str | Mapping[str, Any]
    parallel_tool_calls: bool | None
    response_format: ResponseFormat


def chat_request(messages: Messages, options: ChatOptions) -> pb.GenerateRequest:
    """Return a chat request.

    Raises:
        InvalidRequest: a message means nothing, or a file cannot be read.
    """
    request = _request(options)
    request.audio.encoding = options.audio_encoding
    request.messages.extend(message_protos(messages))
    request.tools.extend(tool_protos(options.tools))
    if options.tool_choice:
        request.tool_choice.CopyFrom(choice_proto(options.tool_choice))
    if options.parallel_tool_calls is not None:
        request.parallel_tool_calls = options.parallel_tool_calls
    if options.response_format:
        request.response_format.CopyFrom(format_proto(options.response_format))
    return request


def generic_request(inputs: Mapping[str, Tree], options: ChatOptions) -> pb.GenerateRequest:
    """Return a request to a pipeline that does not chat; arrays are numpy."""
    request = _request(options)
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(to_proto(value))
    return request


def _request(options: ChatOptions) -> pb.GenerateRequest:
    if isinstance(options.modalities, str):
        raise InvalidRequest(
            f"modalities must be a list such as ['text', 'audio'], got {options.modalities!r}",
            details={"field": "modalities"},
        )
    voice = Voice(options.voice) if isinstance(options.voice, str) else options.voice
    request = pb.GenerateRequest(
        request_id=options.request_id,
        model=options.model,
        modalities=options.modalities,
        stage_events=options.stage_events,
        choices=0 if options.choices == 1 else options.choices,
        labels=dict(options.labels),
    )
    # A pipeline that does not chat refuses these by name, also when they are empty.
    if (sampling := options.sampling.proto()).ListFields():
        request.sampling.CopyFrom(sampling)
    if (talker := voice.proto()).ListFields():
        request.talker.CopyFrom(talker)
    for name, value in options.params.items():
        request.params[name].CopyFrom(to_proto(value))
    for stage, own in options.stage_sampling.items():
        request.stage_sampling[stage].CopyFrom(own.proto())
    for stage, given in options.stage_params.items():
        request.stage_params[stage].CopyFrom(to_proto(dict(given)).map)
    return request


def _set_fields(options: Sampling | Voice) -> dict[str, Any]:
    names = type(options).__dataclass_fields__
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value not in (None, "", (), {})}
