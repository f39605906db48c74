"""What to generate from, in words of ours, and what travels with it to every rank."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from omni_runtime.sglang_bridge.sampling import Grammar, Sampling
from omni_wire.identity import RequestKey


@dataclass(frozen=True, slots=True)
class MediaItem:
    """One picture, video or sound of a prompt, encoded already.

    Attributes:
        kind: `image`, `video` or `audio`.
        identity: 32 bytes; equal ones share cached keys and values, so they cover everything that
            changes the embeddings.
        spans: first and last position (inclusive) of each run of placeholders, in order.
        embeddings: [positions, width], rows in the order of the spans.
    """

    kind: str
    identity: bytes
    spans: tuple[tuple[int, int], ...]
    embeddings: torch.Tensor


@dataclass(frozen=True, slots=True)
class Generation:
    """What to generate from.

    Attributes:
        prompt_ids: tokens of the prompt, placeholders included.
        sampling: how tokens are drawn.
        media: what stands at the placeholders.
        positions: rotary positions int64 [3, prompt]; None counts up.
        position_delta: what decode positions add to the length.
        grammar: what the answer must look like; None leaves it free.
    """

    prompt_ids: Sequence[int]
    sampling: Sampling
    media: tuple[MediaItem, ...] = ()
    positions: torch.Tensor | None = None
    position_delta: int = 0
    grammar: Grammar | None = None


@dataclass(frozen=True, slots=True)
class Submit:
    """A request on its way to the schedulers of all ranks.

    Attributes:
        fallback_seed: seed of a request that named none, where its neighbours need one.
    """

    request_id: str
    generation: Generation
    fallback_seed: int


@dataclass(frozen=True, slots=True)
class Gate:
    """A row may, or may not, be part of the next steps."""

    request_id: str
    open: bool


@dataclass(frozen=True, slots=True)
class Cancel:
    """A request ends now."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The engine ends after the step in progress, on every rank."""


class RequestIds:
    """SGLang's ids of requests: all of one length, because its abort matches by prefix."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def next(self) -> str:
        """Return a new id."""
        return f"{next(self._numbers):016x}"


def seed_of(key: RequestKey) -> int:
    """Return a number that is the same on every rank and differs between requests."""
    name = f"{key.gateway}/{key.request_id}/{key.epoch}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:7])
