"""Keeps torch's compiler out of an engine on the CPU.

Compiled functions cost minutes of a plain CPU and save nothing there. `TORCHDYNAMO_DISABLE` makes
them run as they are written, but `torch.compile`, which SGLang applies while it is imported, still
imports the whole compiler first: an eighth of the time that an engine takes to start.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import torch

F = TypeVar("F", bound=Callable[..., object])


def leave_uncompiled() -> None:
    """Make `torch.compile` return what it is given, in this process."""
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    torch.compile = _as_written


def _as_written(model: F | None = None, **_: object) -> F | Callable[[F], F]:
    """Stands for `torch.compile`, called or used as a decorator with options."""
    return (lambda function: function) if model is None else model
