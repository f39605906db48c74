"""What happens to a request, as typed events in the order they arise.

Text and speech interleave freely; the pieces of each are in order and abut. `Finished` is the last
event of an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from omni_client.sound import samples_of
from omni_wire.decoder import decode_error
from omni_wire.errors import from_info
from omni_wire.messages import Tree
from omni_wire.trees import from_proto
from omni_wire.v1 import gateway_pb2 as pb


@dataclass(frozen=True, slots=True)
class Started:
    """The request was admitted; `model` answers it."""

    request_id: str
    model: str


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a token was.

    Attributes:
        token: as text, as far as it is any: it may be a part of a character.
        logprob: natural logarithm of its probability.
        spelled: its bytes.
        top: the likeliest tokens in its place, likeliest first.
    """

    token: str
    logprob: float
    spelled: bytes
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of text; `logprobs` are of its tokens, where they were asked for."""

    text: str
    choice: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class AudioChunk:
    """The next piece of speech.

    Attributes:
        samples: float32 in [-1, 1]; `[n]`, or `[n, channels]`; none when `data` is a file.
        sample_rate: in hertz.
        sample_offset: position of the first sample in the whole speech.
        data: the bytes as the gateway sent them.
        encoding: `pcm16`, `float32`, or a file format.
    """

    samples: npt.NDArray[np.float32]
    sample_rate: int
    sample_offset: int
    data: bytes
    encoding: str
    choice: int = 0


@dataclass(frozen=True, slots=True)
class StageProgress:
    """A stage `started`, gave its `first_output` or `finished`, so many seconds after admission.

    Stages tell when they are done with a request, so these come in order of time at its end.
    """

    stage: str
    instance: str
    phase: str
    seconds: float
    choice: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class StageOutput:
    """Output of a terminal stage of a pipeline that does not chat; arrays are numpy."""

    stage: str
    modality: str
    data: Tree
    final: bool


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request took: tokens read and written, and seconds of speech made."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    audio_seconds: float = 0.0

    @property
    def total_tokens(self) -> int:
        """Tokens read and written."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a call that the model asks for; `arguments` is a piece of JSON text."""

    id: str
    name: str
    arguments: str
    index: int
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete; `reason` is `stop`, `length`, `tool_calls` or `abort`."""

    reason: str
    choice: int = 0


Event: TypeAlias = (
    Started
    | TextDelta
    | AudioChunk
    | StageProgress
    | StageOutput
    | Usage
    | ToolCallDelta
    | Finished
)


def event_of(proto: pb.GenerateEvent) -> Event | None:
    """Return the event of a message; null for one that a newer gateway sends."""
    kind = proto.WhichOneof("event")
    if kind == "text":
        logprobs = tuple(map(_logprob, proto.text.logprobs))
        return TextDelta(proto.text.text, proto.choice, logprobs)
    if kind == "audio":
        return _audio_chunk(proto.audio, proto.choice)
    if kind == "finished":
        return Finished(proto.finished.reason, proto.choice)
    if kind == "usage":
        return usage_of(proto.usage)
    if kind == "started":
        return Started(proto.request_id, proto.started.model)
    if kind == "output":
        output = proto.output
        return StageOutput(output.stage, output.modality, from_proto(output.data), output.final)
    return _rare_event(proto, kind)


def converse_event(proto: pb.ConverseEvent) -> Event | None:
    """Return the event of a message on a Converse stream; null for what is about uploads.

    Raises:
        ServiceError: the message says that the request failed.
    """
    if proto.HasField("failed"):
        raise from_info(decode_error(proto.failed.error))
    return event_of(proto.generate) if proto.HasField("generate") else None


def _rare_event(proto: pb.GenerateEvent, kind: str | None) -> Event | None:
    if kind == "stage":
        stage = proto.stage
        seconds = stage.since_admission.ToTimedelta().total_seconds()
        return StageProgress(stage.stage, stage.instance, stage.phase, seconds, proto.choice)
    if kind == "tool_call":
        call = proto.tool_call
        return ToolCallDelta(call.id, call.name, call.arguments_json, call.index, proto.choice)
    return None


def usage_of(proto: pb.Usage) -> Usage:
    """Return the usage of a message."""
    return Usage(
        prompt_tokens=proto.prompt_tokens,
        completion_tokens=proto.completion_tokens,
        cached_tokens=proto.cached_tokens,
        audio_seconds=proto.audio_seconds,
    )


def _logprob(proto: pb.TokenLogprob) -> TokenLogprob:
    top = tuple(map(_logprob, proto.top))
    return TokenLogprob(proto.token, proto.logprob, proto.token_bytes, top)


def _audio_chunk(proto: pb.AudioChunk, choice: int) -> AudioChunk:
    encoding = proto.encoding or "pcm16"
    raw = encoding in ("pcm16", "float32")
    samples = (
        samples_of(proto.data, encoding, proto.channels) if raw else np.empty(0, dtype=np.float32)
    )
    return AudioChunk(samples, proto.sample_rate, proto.sample_offset, proto.data, encoding, choice)
