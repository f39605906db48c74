"""A thinker whose forward pass raises for some tokens, as a kernel might for some shapes."""

from __future__ import annotations

from typing import Any

from omni_models.qwen3_omni.factories import create_thinker

EARLY, LATE, BROKEN = 77, 78, 79
"""Tokens of a prompt that raise before the layers have run, after they have, and the way CUDA does
when a device is lost."""


def create_poisoned_thinker(model_path: str, **more: Any) -> Any:
    """Return a thinker that raises where one of these tokens is an input."""
    import torch

    scheduler: Any = create_thinker(model_path, **more)
    model = scheduler.hosted.model
    forward = model.forward

    def poisoned(input_ids: Any, *rest: Any, **named: Any) -> Any:
        tokens = set(input_ids.tolist())
        if BROKEN in tokens:
            raise torch.AcceleratorError("CUDA error: device-side assert triggered")
        if EARLY in tokens:
            raise ValueError("no kernel for this shape")
        answer = forward(input_ids, *rest, **named)
        if LATE in tokens:
            raise ValueError("no kernel for this shape")
        return answer

    model.forward = poisoned
    return scheduler
