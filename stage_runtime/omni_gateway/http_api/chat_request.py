"""`POST /v1/chat/completions`: the request, and the chat request it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from omni_gateway.chat.request import MAX_CHOICES, ChatRequest
from omni_gateway.http_api.messages import MAX_MESSAGES, Message
from omni_gateway.http_api.model import ApiModel, refused, served
from omni_gateway.http_api.structured import (
    MAX_TOOLS,
    ResponseFormat,
    Tool,
    ToolChoice,
    format_params,
    tool_params,
)
from omni_wire.messages import Tree

INT64 = 2**63 - 1
TokenId = Annotated[str, Field(pattern="^[0-9]{1,9}$")]
AudioFormat = Literal["pcm16", "wav", "mp3", "opus", "flac"]

_SAME_NAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "min_tokens",
    "stop_token_ids",
    "ignore_eos",
    "seed",
    "talker_temperature",
    "talker_top_p",
    "talker_top_k",
    "talker_repetition_penalty",
)
_INPUTS = (
    "use_audio_in_video",
    "video_fps",
    "video_max_frames",
    "video_min_pixels",
    "video_max_pixels",
)


class Audio(ApiModel):
    """How speech comes back."""

    voice: str = Field(description="Name of a speaker of the model.", max_length=128)
    format: AudioFormat = Field(
        "wav",
        description="pcm16 is bare samples; pieces of the other formats, joined, are one file.",
    )


class StreamOptions(ApiModel):
    """What a stream holds beside the answer."""

    include_usage: bool | None = served("A last chunk tells what the request took.")
    include_obfuscation: bool | None = refused("chunks are not padded.", False)


class StageSampling(ApiModel):
    """How one stage draws; each stage reads its own part of it, and the rest is refused."""

    max_tokens: int | None = served("Most tokens, or frames of speech.", ge=1, le=INT64)
    temperature: float | None = served("0 is greedy.", ge=0, le=2)
    top_p: float | None = served("Share of probability kept.", gt=0, le=1)
    top_k: int | None = served("Candidates kept; -1 for all.", ge=-1, le=INT64)
    min_p: float | None = served("Lowest probability kept.", ge=0, le=1)
    repetition_penalty: float | None = served("Divides logits of tokens seen.", gt=0, le=2)
    frequency_penalty: float | None = served("Per occurrence in the answer.", ge=-2, le=2)
    presence_penalty: float | None = served("Once per token of the answer.", ge=-2, le=2)
    min_tokens: int | None = served("Tokens before an end.", ge=0, le=INT64)


class ChatCompletionRequest(ApiModel):
    """A chat request: OpenAI's fields, then ours."""

    model: str = Field(description="Name of the pipeline, as /v1/models lists it.")
    messages: list[Message] = Field(
        description="The conversation.", min_length=1, max_length=MAX_MESSAGES
    )
    modalities: list[Literal["text", "audio"]] | None = served(
        'Wanted outputs; ["text"] when absent.', min_length=1, max_length=2
    )
    audio: Audio | None = served("Voice and format of speech; implies no modality.")
    stream: bool | None = served("Send the answer as it arises, as server-sent events.")
    stream_options: StreamOptions | None = served("Only with stream.")
    n: int | None = served("Number of answers.", ge=1, le=MAX_CHOICES)
    max_completion_tokens: int | None = served("Most tokens to generate.", ge=1, le=INT64)
    max_tokens: int | None = served("Older name of max_completion_tokens.", ge=1, le=INT64)
    temperature: float | None = served("0 is greedy.", ge=0, le=2)
    top_p: float | None = served("Share of probability kept.", gt=0, le=1)
    frequency_penalty: float | None = served("Per occurrence in the answer.", ge=-2, le=2)
    presence_penalty: float | None = served("Once per token of the answer.", ge=-2, le=2)
    stop: str | Annotated[list[str], Field(max_length=32)] | None = served(
        "Texts that end the answer and are not part of it."
    )
    seed: int | None = served("Same seed, same draw; answer i of n takes seed + i.", ge=0, le=INT64)
    metadata: dict[str, str] | None = served("Kept with the request in traces.", max_length=16)
    user: str | None = served("Kept with the request in traces, as label user.", max_length=512)
    safety_identifier: str | None = served(
        "Kept with the request in traces, as label safety_identifier.", max_length=512
    )
    logprobs: bool | None = served(
        "Tell how likely each token was: before temperature and filters, after bias, penalties "
        "and grammar."
    )
    top_logprobs: int | None = served(
        "So many of the likeliest tokens with each; needs logprobs.", ge=0, le=20
    )
    logit_bias: (
        Annotated[dict[TokenId, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=1024)]
        | None
    ) = served("Added to logits, by token id.")
    response_format: ResponseFormat | None = served(
        "Keep the answer to JSON, or to a JSON schema; not beside tools."
    )
    tools: list[Tool] | None = served(
        "What the model may ask to call; not beside speech.", max_length=MAX_TOOLS
    )
    tool_choice: ToolChoice | None = served("Whether calls are free, forced or off.")
    parallel_tool_calls: bool | None = served("Whether an answer may hold several calls.")
    functions: list[Any] | None = refused("deprecated by OpenAI.", [])
    function_call: str | dict[str, Any] | None = refused("deprecated by OpenAI.", "none", "auto")
    store: bool | None = refused("nothing is kept.", False)
    service_tier: str | None = refused("there is one tier.", "auto", "default")
    reasoning_effort: str | None = refused("the model has no such switch.", "none")
    verbosity: str | None = refused("the model has no such switch.", "medium")
    prediction: dict[str, Any] | None = refused("predicted outputs are not used.")
    prompt_cache_key: str | None = refused("prefixes are cached without it.")
    prompt_cache_retention: str | None = refused("prefixes stay while there is room.")
    web_search_options: dict[str, Any] | None = refused("nothing is searched.")

    request_id: str | None = served("Name of the request in logs and traces.", max_length=128)
    timeout_seconds: float | None = served("Time for the whole request.", gt=0, le=86_400)
    stage_sampling: dict[str, StageSampling] | None = served(
        "Sampling of single stages, by their names, over what is said for all."
    )
    stage_params: dict[str, dict[str, Any]] | None = served(
        "Other parameters of single stages, likewise."
    )
    stage_events: bool | None = served(
        "Tell in `stages` of each choice when each stage worked on it."
    )
    top_k: int | None = served("Candidates kept; -1 for all.", ge=-1, le=INT64)
    min_p: float | None = served("Lowest probability kept.", ge=0, le=1)
    repetition_penalty: float | None = served("Divides logits of tokens seen.", gt=0, le=2)
    min_tokens: int | None = served("Tokens before an end.", ge=0, le=INT64)
    stop_token_ids: list[Annotated[int, Field(ge=0, le=INT64)]] | None = served(
        "Tokens that end the answer.", max_length=128
    )
    ignore_eos: bool | None = served("Go on to max_tokens.")
    talker_temperature: float | None = served("Of speech; 0 is greedy.", ge=0, le=2)
    talker_top_p: float | None = served("Of speech.", gt=0, le=1)
    talker_top_k: int | None = served("Of speech; -1 for all.", ge=-1, le=INT64)
    talker_repetition_penalty: float | None = served("Of speech.", gt=0, le=2)
    talker_max_new_tokens: int | None = served("Most speech frames.", ge=1, le=INT64)
    use_audio_in_video: bool | None = served("Listen to the sound of videos.")
    video_fps: float | None = served("Frames per second to look at.", gt=0, le=60)
    video_max_frames: int | None = served("Most frames to look at.", ge=1, le=INT64)
    video_min_pixels: int | None = served("Pixels per frame, at least.", ge=1, le=INT64)
    video_max_pixels: int | None = served("Pixels per frame, at most.", ge=1, le=INT64)
    images: list[str] | None = served("URLs of pictures, before the last user message's text.")
    audios: list[str] | None = served("URLs of sounds, likewise.")
    videos: list[str] | None = served("URLs of videos, likewise.")

    @model_validator(mode="after")
    def _agree(self) -> ChatCompletionRequest:
        both = (self.max_tokens, self.max_completion_tokens)
        if None not in both and both[0] != both[1]:
            raise ValueError("max_tokens and max_completion_tokens differ; send one of them")
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs to be true")
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only served with stream")
        return self

    @property
    def wanted(self) -> tuple[str, ...]:
        """The outputs that are wanted."""
        return tuple(self.modalities or ("text",))

    @property
    def speaks(self) -> bool:
        """Whether speech is wanted."""
        return "audio" in self.wanted

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with what the request took."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def chat_request(self) -> ChatRequest:
        """Return the chat request."""
        return ChatRequest(
            inputs=self._inputs(),
            params=self._params(),
            modalities=self.wanted,
            request_id=self.request_id or "",
            choices=self.n or 1,
            timeout_seconds=self.timeout_seconds,
            labels=self._labels(),
            stage_events=bool(self.stage_events),
            stage_settings={
                "stage_sampling": {
                    stage: sampling.model_dump(exclude_none=True)
                    for stage, sampling in (self.stage_sampling or {}).items()
                },
                "stage_params": self.stage_params or {},
            },
        )

    def _inputs(self) -> dict[str, Tree]:
        inputs: dict[str, Tree] = {
            "messages": [message.model_dump(exclude_none=True) for message in self.messages]
        }
        for name in (*_INPUTS, "images", "audios", "videos"):
            if (value := getattr(self, name)) is not None:
                inputs[name] = value
        return inputs

    def _params(self) -> dict[str, Tree]:
        params: dict[str, Tree] = {
            name: value for name in _SAME_NAME if (value := getattr(self, name)) is not None
        }
        most = self.max_completion_tokens or self.max_tokens
        stop = [self.stop] if isinstance(self.stop, str) else self.stop
        voice = self.audio.voice if self.audio is not None else None
        renamed: Mapping[str, Tree] = {
            "max_tokens": most,
            "stop": list(stop) if stop else None,
            "speaker": voice,
            "talker_max_tokens": self.talker_max_new_tokens,
        }
        params |= {name: value for name, value in renamed.items() if value is not None}
        return {
            **params,
            **self._logprob_params(),
            **format_params(self.response_format),
            **tool_params(self.tools, self.tool_choice, self.parallel_tool_calls),
        }

    def _logprob_params(self) -> dict[str, Tree]:
        params: dict[str, Tree] = {}
        if self.logprobs:
            params = {"logprobs": True, "top_logprobs": self.top_logprobs or 0}
        if self.logit_bias:
            params["logit_bias"] = dict(self.logit_bias)
        return params

    def _labels(self) -> dict[str, str]:
        own = {"user": self.user, "safety_identifier": self.safety_identifier}
        return {**(self.metadata or {}), **{key: value for key, value in own.items() if value}}
