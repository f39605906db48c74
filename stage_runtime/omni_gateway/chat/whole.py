"""Whole answers, gathered from their events. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from omni_gateway.chat.answers import ChoiceEvent
from omni_gateway.chat.calls import CallGathering
from omni_gateway.chat.events import (
    AudioDelta,
    ChatEvent,
    Finished,
    StageTimes,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)


class WholeAnswer:
    """One answer; whole once `Finished` has come.

    Attributes:
        logprobs: of the text's tokens, where they were asked for.
        stages: when each stage worked on it; null where nobody asked.
        finished: how it ended.
    """

    def __init__(self) -> None:
        self.logprobs: list[TokenLogprob] = []
        self.stages: StageTimes | None = None
        self.finished = Finished("stop", Usage())
        self._texts: list[str] = []
        self._pieces: list[npt.NDArray[np.float32]] = []
        self._calls = CallGathering()

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self._texts)

    @property
    def samples(self) -> npt.NDArray[np.float32]:
        """The whole speech, `[n]`; empty when there is none."""
        return np.concatenate(self._pieces) if self._pieces else np.empty(0, np.float32)

    @property
    def calls(self) -> list[ToolCallDelta]:
        """The functions that it asks to call."""
        return self._calls.calls

    def add(self, event: ChatEvent) -> None:
        """Take in the next event."""
        match event:
            case TextDelta(text=text, logprobs=logprobs):
                self._texts.append(text)
                self.logprobs += logprobs
            case ToolCallDelta():
                self._calls.add(event)
            case AudioDelta(samples=samples):
                self._pieces.append(samples)
            case StageTimes():
                self.stages = event
            case Finished():
                self.finished = event


class WholeAnswers:
    """All answers to one request.

    Attributes:
        answers: in order of their choice.
    """

    def __init__(self, choices: int) -> None:
        self.answers = [WholeAnswer() for _ in range(choices)]

    def add(self, found: ChoiceEvent) -> None:
        """Take in the next event."""
        self.answers[found.choice].add(found.event)

    @property
    def usage(self) -> Usage:
        """What all of them took together."""
        usage = Usage()
        for answer in self.answers:
            usage = usage.plus(answer.finished.usage)
        return usage
