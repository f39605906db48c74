"""A chat request as the gateway holds it, before it becomes what stages see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from omni_gateway.chat.stage_settings import StageSettings, stage_parameters
from omni_gateway.request_view import OUTPUT_MODALITIES, TIMELINE, TRACE_CONTEXT
from omni_wire.errors import InvalidRequest
from omni_wire.messages import RequestView, Tree

MAX_CHOICES = 16
"""Most answers to one request; each is a request of its own to the pipeline."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A conversation and what is wanted of the answer.

    Attributes:
        inputs: what preprocessing reads: `messages` in OpenAI's shape, and settings of media.
        params: what the stages read by name, such as `temperature` or `speaker`.
        modalities: `text`, `audio`; empty for the pipeline's default.
        choices: number of answers.
        timeout_seconds: for the whole request; null for the gateway's default.
        labels: text kept with the request in logs and traces.
        stage_events: whether to tell when each stage worked on it.
        stage_settings: what single stages read instead of what `params` says.
    """

    inputs: Mapping[str, Tree]
    params: Mapping[str, Tree] = field(default_factory=dict)
    modalities: tuple[str, ...] = ()
    request_id: str = ""
    choices: int = 1
    timeout_seconds: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    stage_events: bool = False
    stage_settings: StageSettings = field(default_factory=dict)

    def view(self, trace_context: Mapping[str, str]) -> RequestView:
        """Return the request as stages see it."""
        metadata: dict[str, Tree] = {TIMELINE: {}}
        if self.modalities:
            metadata[OUTPUT_MODALITIES] = list(self.modalities)
        if self.labels:
            metadata["labels"] = dict(self.labels)
        if trace_context:
            metadata[TRACE_CONTEXT] = dict(trace_context)
        return RequestView(dict(self.inputs), dict(self.params), metadata)

    def settled(self, declared: Mapping[str, Mapping[str, str]]) -> ChatRequest:
        """Return the request with the settings of single stages among its parameters.

        Args:
            declared: what each stage reads, as the pipeline's author says it.

        Raises:
            InvalidRequest: a stage reads no such setting.
        """
        if not self.stage_settings:
            return self
        params = {**self.params, **stage_parameters(self.stage_settings, declared)}
        return replace(self, params=params, stage_settings={})

    def choice(self, index: int) -> ChatRequest:
        """Return the request for one of several answers; a seed makes each of them repeatable."""
        if self.choices <= 1:
            return self
        params = dict(self.params)
        seed = params.get("seed")
        if isinstance(seed, int):
            params["seed"] = seed + index
        request_id = f"{self.request_id}-{index}" if self.request_id else ""
        return replace(self, params=params, request_id=request_id, choices=1)


def checked_choices(count: int, field_name: str) -> int:
    """Return the number of answers.

    Raises:
        InvalidRequest: it is out of range.
    """
    if not 1 <= count <= MAX_CHOICES:
        raise refused(field_name, f"must be between 1 and {MAX_CHOICES}, got {count}")
    return count


def refused(field_name: str, problem: str) -> InvalidRequest:
    """Return the error for one field of a request."""
    return InvalidRequest(f"{field_name} {problem}", details={"field": field_name})
