"""Attention within segments of one long row of tokens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch.nn import functional


def segment_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: Sequence[int]
) -> torch.Tensor:
    """Let each token attend to the tokens of its own segment.

    Neighbouring segments of equal length, such as the frames of a video, are computed in one call.

    Args:
        q, k, v: `[tokens, heads, head_dim]`.
        lengths: tokens of each segment; they add up to all tokens.

    Returns:
        `[tokens, heads * head_dim]`.
    """
    outputs: list[torch.Tensor] = []
    begin = 0
    for length, group in itertools.groupby(lengths):
        count = sum(1 for _ in group)
        end = begin + count * length
        segments = (t[begin:end].unflatten(0, (count, length)).transpose(1, 2) for t in (q, k, v))
        attended = functional.scaled_dot_product_attention(*segments)
        outputs.append(attended.transpose(1, 2).flatten(0, 1).flatten(1))
        begin = end
    return torch.cat(outputs)
