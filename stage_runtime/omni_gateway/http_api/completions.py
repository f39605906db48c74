"""Events of answers as OpenAI's `chat.completion` objects and chunks."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from omni_gateway.chat.answers import ChoiceEvent
from omni_gateway.chat.audio import AudioEncoder
from omni_gateway.chat.events import (
    AudioDelta,
    Finished,
    Likelihood,
    StageTimes,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from omni_gateway.chat.whole import WholeAnswer, WholeAnswers

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CompletionFrame:
    """What every object of one request repeats.

    Attributes:
        fingerprint: names the configuration that answered.
        writes: whether text is wanted as such, not only as a transcript of the speech.
        speaks: whether speech is wanted.
        audio_format: of the speech.
    """

    request_id: str
    model: str
    fingerprint: str
    writes: bool
    speaks: bool
    audio_format: str
    sample_rate: int
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def id(self) -> str:
        """Name of the completion."""
        return f"chatcmpl-{self.request_id}"

    def audio_id(self, choice: int) -> str:
        """Name of one answer's speech."""
        return f"audio-{self.request_id}-{choice}"

    def encoder(self) -> AudioEncoder:
        """Return what encodes one answer's speech.

        Raises:
            InvalidRequest: the pipeline does not speak.
        """
        return AudioEncoder(self.audio_format, self.sample_rate, "audio.format")

    def head(self, kind: str) -> Json:
        """Return what every object begins with."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


class CompletionStream:
    """Turns events into chunks."""

    def __init__(self, frame: CompletionFrame, choices: int, include_usage: bool) -> None:
        self._frame = frame
        self._include_usage = include_usage
        self._encoders = [frame.encoder() if frame.speaks else None for _ in range(choices)]
        self._usage = Usage()

    def opening(self) -> Iterator[Json]:
        """Yield what comes before any event."""
        for choice in range(len(self._encoders)):
            yield self._chunk(choice, {"role": "assistant", "content": ""})

    def chunks(self, found: ChoiceEvent) -> Iterator[Json]:
        """Yield the chunks of one event."""
        choice, encoder = found.choice, self._encoders[found.choice]
        match found.event:
            case TextDelta(text=text, logprobs=logprobs) if text or logprobs:
                yield self._chunk(choice, self._text(choice, text), logprobs=logprobs)
            case ToolCallDelta():
                yield self._chunk(choice, {"tool_calls": [_call_delta(found.event)]})
            case AudioDelta(samples=samples) if encoder is not None:
                if data := encoder.encode(samples):
                    yield self._chunk(choice, self._audio(choice, data))
            case StageTimes():
                chunk = self._chunk(choice, {})
                chunk["choices"][0]["stages"] = _stages(found.event)
                yield chunk
            case Finished(reason=reason, usage=usage):
                self._usage = self._usage.plus(usage)
                if encoder is not None and (rest := encoder.finish()):
                    yield self._chunk(choice, self._audio(choice, rest))
                yield self._chunk(choice, {}, reason)

    def closing(self) -> Iterator[Json]:
        """Yield what comes after every event."""
        if self._include_usage:
            head = self._frame.head("chat.completion.chunk")
            yield {**head, "choices": [], "usage": usage_json(self._usage)}

    def _text(self, choice: int, text: str) -> Json:
        if self._frame.writes:
            return {"content": text}
        return {"audio": {"id": self._frame.audio_id(choice), "transcript": text}}

    def _audio(self, choice: int, data: bytes) -> Json:
        return {"audio": {"id": self._frame.audio_id(choice), "data": _base64(data)}}

    def _chunk(
        self,
        choice: int,
        delta: Json,
        reason: str | None = None,
        logprobs: Sequence[TokenLogprob] = (),
    ) -> Json:
        one: Json = {
            "index": choice,
            "delta": delta,
            "finish_reason": reason,
            "logprobs": _logprobs(logprobs),
        }
        chunk = {**self._frame.head("chat.completion.chunk"), "choices": [one]}
        if self._include_usage:
            chunk["usage"] = None
        return chunk


def completion_json(frame: CompletionFrame, whole: WholeAnswers) -> Json:
    """Return complete answers as one object."""
    choices = [_choice(frame, index, answer) for index, answer in enumerate(whole.answers)]
    head = frame.head("chat.completion")
    return {**head, "choices": choices, "usage": usage_json(whole.usage)}


def _choice(frame: CompletionFrame, index: int, answer: WholeAnswer) -> Json:
    text, calls = answer.text, answer.calls
    message: Json = {"role": "assistant", "refusal": None}
    # An answer that only calls says nothing, which OpenAI's clients expect to be null.
    message["content"] = text if frame.writes and (text or not calls) else None
    if calls:
        message["tool_calls"] = [_call(call) for call in calls]
    if frame.speaks:
        message["audio"] = {
            "id": frame.audio_id(index),
            "data": _base64(frame.encoder().whole(answer.samples)),
            "transcript": text,
            "expires_at": frame.created,
        }
    choice: Json = {
        "index": index,
        "message": message,
        "finish_reason": answer.finished.reason,
        "logprobs": _logprobs(answer.logprobs),
    }
    return choice if answer.stages is None else {**choice, "stages": _stages(answer.stages)}


def _call(call: ToolCallDelta) -> Json:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _call_delta(delta: ToolCallDelta) -> Json:
    if delta.id:
        return {"index": delta.index, **_call(delta)}
    return {"index": delta.index, "function": {"arguments": delta.arguments}}


def _logprobs(found: Sequence[TokenLogprob]) -> Json | None:
    if not found:
        return None
    content = [
        {**_likelihood(one.token), "top_logprobs": [_likelihood(other) for other in one.top]}
        for one in found
    ]
    return {"content": content, "refusal": None}


def _likelihood(token: Likelihood) -> Json:
    return {"token": token.text, "logprob": token.logprob, "bytes": list(token.spelled)}


def _stages(times: StageTimes) -> list[Json]:
    """Return when stages worked on an answer, as `/v1/requests/ID` tells it."""
    return [span.tree() for span in times.spans]


def usage_json(usage: Usage) -> Json:
    """Return a usage in OpenAI's shape, with seconds of speech beside it."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "audio_seconds": usage.audio_seconds,
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
