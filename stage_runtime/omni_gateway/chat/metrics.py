"""What chat costs and how soon it is heard, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram

from omni_gateway.chat.events import AudioDelta, ChatEvent, Finished, TextDelta

MADE_TOKENS = "made_tokens"
MADE_AUDIO_SECONDS = "made_audio_seconds"
FIRST_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 60)
FACTORS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0, 1.2, 1.5, 2, 4)


class ChatMetrics:
    """Metrics of the chat APIs of one gateway."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._answers = Counter(
            "omni_gateway_chat_answers",
            "Answers that ended, by API and finish reason, or by the error's reason.",
            ["api", "reason"],
            registry=registry,
        )
        self._tokens = Counter(
            "omni_gateway_chat_tokens",
            "Tokens read (prompt), found in a cache (cached) and written (completion).",
            ["kind"],
            registry=registry,
        )
        self._audio = Counter(
            "omni_gateway_chat_audio_seconds", "Seconds of speech made.", registry=registry
        )
        self._first_token = Histogram(
            "omni_gateway_chat_time_to_first_token_seconds",
            "From submission to the first text of an answer.",
            buckets=FIRST_SECONDS,
            registry=registry,
        )
        self._first_audio = Histogram(
            "omni_gateway_chat_time_to_first_audio_seconds",
            "From submission to the first sound of an answer.",
            buckets=FIRST_SECONDS,
            registry=registry,
        )
        self._factor = Histogram(
            "omni_gateway_chat_real_time_factor",
            "Seconds spent per second of speech; below 1 speech is made faster than it plays.",
            buckets=FACTORS,
            registry=registry,
        )

    def answer(self, api: str) -> AnswerMeter:
        """Return what measures one answer, from now on."""
        return AnswerMeter(self, api)

    def first_token(self, seconds: float) -> None:
        """Note how long the first text took."""
        self._first_token.observe(seconds)

    def first_audio(self, seconds: float) -> None:
        """Note how long the first sound took."""
        self._first_audio.observe(seconds)

    def ended(self, api: str, reason: str) -> None:
        """Count an answer that ended."""
        self._answers.labels(api, reason).inc()

    def finished(self, event: Finished, seconds: float) -> None:
        """Add what a complete answer took."""
        usage = event.usage
        self._tokens.labels("prompt").inc(usage.prompt_tokens)
        self._tokens.labels("cached").inc(usage.cached_tokens)
        self._tokens.labels("completion").inc(usage.completion_tokens)
        if usage.audio_seconds:
            self._audio.inc(usage.audio_seconds)
            self._factor.observe(seconds / usage.audio_seconds)


@dataclass(slots=True)
class AnswerMeter:
    """Measures one answer."""

    metrics: ChatMetrics
    api: str
    _began: float = field(default_factory=time.monotonic)
    _tokens: int | None = None
    _audio_seconds: float | None = None

    def saw(self, event: ChatEvent) -> None:
        """Note an event of the answer."""
        match event:
            case TextDelta(tokens=tokens):
                if self._tokens is None:
                    self.metrics.first_token(self._seconds)
                self._tokens = (self._tokens or 0) + tokens
            case AudioDelta(samples=samples, sample_rate=rate):
                if self._audio_seconds is None:
                    self.metrics.first_audio(self._seconds)
                self._audio_seconds = (self._audio_seconds or 0.0) + len(samples) / rate
            case Finished(reason=reason):
                self.metrics.finished(event, self._seconds)
                self.metrics.ended(self.api, reason)

    @property
    def made(self) -> Mapping[str, str]:
        """What there is of the answer, as details of the error that ended it."""
        made = {MADE_TOKENS: self._tokens, MADE_AUDIO_SECONDS: self._audio_seconds}
        return {name: f"{value:g}" for name, value in made.items() if value is not None}

    def failed(self, reason: str) -> None:
        """Note that the answer failed, or that its reader left."""
        self.metrics.ended(self.api, reason)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began
