"""A whole answer, gathered from its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from omni_client.events import (
    AudioChunk,
    Event,
    Finished,
    StageOutput,
    StageProgress,
    Started,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from omni_client.sound import Audio
from omni_client.tools import ToolCall
from omni_wire.messages import Tree


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said.

    Attributes:
        text: the whole text.
        audio: the whole speech, null when there is none or it was asked for as a file.
        encoded_audio: the speech as a file, when `audio_encoding` named a file format.
        finish_reason: `stop`, `length`, `tool_calls` or `abort`.
        tool_calls: what the model asks to call.
        logprobs: of every token, where they were asked for.
        outputs: results by stage, for pipelines that do not chat.
        stages: when each stage began and ended its work, where `stage_events` asked for it.
    """

    request_id: str
    model: str
    text: str
    audio: Audio | None
    encoded_audio: bytes
    finish_reason: str
    usage: Usage
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    outputs: dict[str, Tree] = field(default_factory=dict)
    stages: tuple[StageProgress, ...] = ()


class AnswerBuilder:
    """Gathers one answer; events of other choices are left alone."""

    def __init__(self, choice: int = 0) -> None:
        self._choice = choice
        self._started = Started("", "")
        self._texts: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._chunks: list[AudioChunk] = []
        self._calls: dict[int, ToolCall] = {}
        self._outputs: dict[str, Tree] = {}
        self._stages: list[StageProgress] = []
        self._usage = Usage()
        self._reason = ""

    def add(self, event: Event) -> None:
        """Take in the next event."""
        if getattr(event, "choice", self._choice) != self._choice:
            return
        match event:
            case TextDelta(text=text, logprobs=logprobs):
                self._texts.append(text)
                self._logprobs += logprobs
            case AudioChunk():
                self._chunks.append(event)
            case Finished(reason=reason):
                self._reason = reason
            case Usage():
                self._usage = event
            case Started():
                self._started = event
            case StageOutput(stage=stage, data=data, final=True):
                self._outputs[stage] = data
            case StageProgress():
                self._stages.append(event)
            case ToolCallDelta():
                self._add_call(event)

    def extend(self, events: Iterable[Event]) -> AnswerBuilder:
        """Take in events to the end."""
        for event in events:
            self.add(event)
        return self

    def answer(self) -> Answer:
        """Return the answer so far."""
        raw = bool(self._chunks) and self._chunks[0].encoding in ("pcm16", "float32")
        return Answer(
            request_id=self._started.request_id,
            model=self._started.model,
            text="".join(self._texts),
            audio=self._audio() if raw else None,
            encoded_audio=b"" if raw else b"".join(chunk.data for chunk in self._chunks),
            finish_reason=self._reason,
            usage=self._usage,
            tool_calls=tuple(call for _, call in sorted(self._calls.items())),
            logprobs=tuple(self._logprobs),
            outputs=self._outputs,
            stages=tuple(self._stages),
        )

    def _audio(self) -> Audio:
        samples = np.concatenate([chunk.samples for chunk in self._chunks])
        return Audio(samples, self._chunks[0].sample_rate)

    def _add_call(self, delta: ToolCallDelta) -> None:
        known = self._calls.get(delta.index, ToolCall("", "", ""))
        self._calls[delta.index] = ToolCall(
            known.id or delta.id, known.name or delta.name, known.arguments + delta.arguments
        )
