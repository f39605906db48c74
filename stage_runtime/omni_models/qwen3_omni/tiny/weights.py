"""Random weights, scaled so that outputs vary and every part of the model matters to them.

Each tensor has a generator of its own, seeded by the seed and its name: neither the order of
tensors nor a new one changes the others. Only raw bits are drawn, which numpy keeps the same for
ever, unlike its distributions.
"""

from __future__ import annotations

import math
import re
import zlib
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from omni_models.qwen3_omni.layout import Shape

Weights: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"


@dataclass(frozen=True, slots=True)
class _Rule:
    """Uniform values around `centre` with standard deviation `spread`, for names that match."""

    pattern: re.Pattern[str]
    centre: float
    spread: float


def _rule(pattern: str, centre: float, spread: float) -> _Rule:
    return _Rule(re.compile(pattern), centre, spread)


# The first match counts.
_RULES = (
    # As initialised, these two would hide faults in attention and in the ConvNeXt blocks.
    _rule(r"layer_scale\.scale$", 0.3, 0.05),
    _rule(r"\.gamma$", 0.3, 0.05),
    _rule(r"\.(alpha|beta)$", 0.0, 0.1),
    # Sound within [-1, 1], seldom clipped.
    _rule(r"^code2wav\.decoder\.6\.conv\.weight$", 0.0, 0.008),
    _rule(r"^code2wav\.decoder\.6\.conv\.bias$", 0.0, 0.0),
    _rule(r"^code2wav\.code_embedding\.weight$", 0.0, 1.0),
    _rule(r"(norm\d?|_norm|layernorm|ln_q|ln_post)\.weight$", 1.0, 0.1),
    _rule(r"\.bias$", 0.0, 0.05),
    # Large spreads keep greedy text and speech from repeating themselves.
    _rule(r"^thinker\.(model|lm_head)\.", 0.0, 0.7),
    _rule(r"^talker\.(model|codec_head|code_predictor)\.", 0.0, 0.4),
    _rule(r"", 0.0, 0.15),
)


def random_weights(name: str, shape: Shape, seed: int) -> Weights:
    """Return the float32 weights of one tensor, the same for the same arguments everywhere."""
    rule = next(rule for rule in _RULES if rule.pattern.search(name))
    bits = np.random.PCG64([seed, zlib.crc32(name.encode())]).random_raw(math.prod(shape))
    unit = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
    scale = np.float32(rule.spread * math.sqrt(3))
    return (np.float32(rule.centre) + scale * unit).reshape(shape)
