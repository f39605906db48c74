"""How one request is sampled, in words of ours: needs neither torch nor sglang."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

NO_TOKENS: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer must look like.

    Attributes:
        kind: what `text` is: a JSON schema, or one of xgrammar's structural tags.
        text: as JSON.
        field: what of the request asked for it, for messages.
    """

    kind: Literal["json_schema", "structural_tag"]
    text: str
    field: str


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a token was.

    Attributes:
        logprob: natural logarithm of its probability.
        top: the likeliest tokens of the same step and theirs, likeliest first; none that the
            grammar forbids.
    """

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling of one request; values have been validated by whoever parsed them.

    Attributes:
        max_tokens: most tokens generated.
        temperature: divisor of the logits; 0 takes the likeliest token.
        top_k: candidates kept, None for all.
        top_p: share of probability kept, in (0, 1].
        min_p: lowest probability kept, as a share of the likeliest one's.
        repetition_penalty: divisor of the logits of tokens in prompt or answer; 1 is none.
        frequency_penalty: taken from a logit once per occurrence in the answer.
        presence_penalty: taken from a logit once if the token is in the answer.
        min_tokens: tokens before which no stop token may come.
        stop: texts that end the answer.
        stop_token_ids: tokens that end the answer, besides the model's own.
        ignore_eos: go on after a stop token, up to `max_tokens`.
        seed: the same seed draws the same tokens, alone or in a batch; None draws anew.
        logit_bias: what is added to logits, by token.
        top_logprobs: how many of the likeliest tokens are told with each token and its own
            log-probability; None tells neither.
    """

    max_tokens: int
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = field(default=NO_TOKENS)
    ignore_eos: bool = False
    seed: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    top_logprobs: int | None = None

    @property
    def greedy(self) -> bool:
        """Whether nothing is drawn."""
        return self.temperature == 0.0 or self.top_k == 1

    @property
    def plain(self) -> bool:
        """Whether SGLang's own sampler does all that is asked for."""
        drawn = not self.greedy and self.seed is not None
        told = self.top_logprobs is not None
        return not (drawn or self.penalised or self.min_tokens or self.logit_bias or told)

    @property
    def penalised(self) -> bool:
        """Whether logits depend on what came before."""
        return (
            self.repetition_penalty != 1.0
            or self.frequency_penalty != 0.0
            or self.presence_penalty != 0.0
        )
