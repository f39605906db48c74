"""The parrot with warm-ups declared: one answered in words, one aloud, which may fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from examples.chat.topology import ChatExamplePipelineConfig
from omni_wire.messages import RequestView


class WarmParrotPipelineConfig(ChatExamplePipelineConfig):
    """Its warm-ups are answered."""

    architectures: ClassVar[tuple[str, ...]] = ("WarmParrot",)
    warm_up_fn: ClassVar[str | None] = f"{__name__}.requests"


class ColdParrotPipelineConfig(ChatExamplePipelineConfig):
    """One of its warm-ups always fails."""

    architectures: ClassVar[tuple[str, ...]] = ("ColdParrot",)
    warm_up_fn: ClassVar[str | None] = f"{__name__}.failing_requests"


def requests() -> Mapping[str, RequestView]:
    """Hook `warm_up_fn`."""
    return {"words": _request("hello", "text"), "speech": _request("hello", "text", "audio")}


def failing_requests() -> Mapping[str, RequestView]:
    """Hook `warm_up_fn`, of which the second fails."""
    return {**requests(), "speech": _request("(fail)", "text", "audio")}


def _request(text: str, *modalities: str) -> RequestView:
    return RequestView(
        inputs={"messages": [{"role": "user", "content": text}]},
        metadata={"output_modalities": list(modalities)},
    )


PIPELINES = (WarmParrotPipelineConfig, ColdParrotPipelineConfig)
