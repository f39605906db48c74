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
class TextDelta:
    """The next piece of text, and the tokens it was made of."""

    text: str
    tokens: int = 0


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
        reason: `stop` or `length`.
        results: result of every terminal stage, by name.
        logprobs: of the text's tokens, where the thinker gave any.
    """

    reason: str
    usage: Usage
    results: Mapping[str, Tree] = field(default_factory=dict)
    logprobs: Tree = None


ChatEvent: TypeAlias = TextDelta | AudioDelta | StageDelta | StageTimes | Finished
