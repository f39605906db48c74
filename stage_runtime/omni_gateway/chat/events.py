"""What a chat answer consists of, in the order it arises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from omni_gateway.coordinator import StageSpan
from omni_wire.messages import Tree


@dataclass(frozen=True, slots=True)
class Likelihood:
    """A token, and the natural logarithm of its probability.

    Attributes:
        spelled: its bytes; a token may be a part of a character.
    """

    spelled: bytes
    logprob: float

    @property
    def text(self) -> str:
        """The token as text, as far as it is any."""
        return self.spelled.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token of the answer, and the likeliest ones in its place, likeliest first."""

    token: Likelihood
    top: tuple[Likelihood, ...] = ()


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of text, and the tokens it was made of.

    Attributes:
        logprobs: of those tokens, where the request wants to know.
    """

    text: str
    tokens: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """The next piece of a call that the model asks for.

    Attributes:
        index: which call of the answer it belongs to, from 0.
        id, name: in its first piece only.
        arguments: the next piece of its arguments' JSON text.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class AudioDelta:
    """The next piece of speech; pieces abut.

    Attributes:
        samples: float32 in [-1, 1], `[n]`.
        sample_rate: in hertz.
        offset: position of the first sample.
    """

    samples: npt.NDArray[np.float32]
    sample_rate: int
    offset: int


@dataclass(frozen=True, slots=True)
class StageDelta:
    """Output of a terminal stage that is neither text nor speech."""

    stage: str
    modality: str
    data: Tree
    chunk_id: int


@dataclass(frozen=True, slots=True)
class StageTimes:
    """When each stage worked on the request, for who asked; comes once all of them are done."""

    spans: tuple[StageSpan, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request took."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    audio_seconds: float = 0.0

    def plus(self, other: Usage) -> Usage:
        """Return what two answers to one prompt took: the prompt was read once."""
        return Usage(
            max(self.prompt_tokens, other.prompt_tokens),
            self.completion_tokens + other.completion_tokens,
            max(self.cached_tokens, other.cached_tokens),
            self.audio_seconds + other.audio_seconds,
        )


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete.

    Attributes:
        reason: `stop`, `length` or `tool_calls`.
        results: result of every terminal stage, by name.
    """

    reason: str
    usage: Usage
    results: Mapping[str, Tree] = field(default_factory=dict)


ChatEvent: TypeAlias = TextDelta | ToolCallDelta | AudioDelta | StageDelta | StageTimes | Finished
