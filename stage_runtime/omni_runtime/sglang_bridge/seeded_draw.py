"""Drawing tokens so that a row's draw depends on its seed and position alone.

A generator would make a row's draw depend on its neighbours and on the order of rows. Here the
noise of each candidate is a hash of (seed, position, candidate), and the token is the argmax of
log-probability plus Gumbel noise, which has exactly the wanted distribution. All operations are
elementwise or per row, so the same numbers come out alone, in a batch and on any device, up to the
rounding of the logits themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

_MASK = 0xFFFFFFFF
# A few hundred candidates are found much faster than a whole vocabulary is sorted.
_MOST_TOP_K = 1024


@dataclass(frozen=True, slots=True)
class DrawOptions:
    """Options of the rows of one batch, each a tensor [rows] on the device of the logits.

    Attributes:
        temperature: float32, above 0; greedy rows hold any positive number.
        top_k: int64, at least 1; the size of the vocabulary keeps everything.
        top_p: float32 in (0, 1].
        min_p: float32 in [0, 1).
        greedy: bool, rows that take the likeliest token.
        seed: int64.
        most_top_k: largest entry of `top_k`, known on the host so that nothing waits for a device.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    greedy: torch.Tensor
    seed: torch.Tensor
    most_top_k: int


def draw(logits: torch.Tensor, options: DrawOptions, positions: torch.Tensor) -> torch.Tensor:
    """Return one token per row, int64 [rows].

    Filters follow transformers: temperature, then top-k, then top-p, then min-p.

    Args:
        logits: float32 [rows, vocabulary]; not changed.
        positions: int64 [rows], what tells one draw of a request from its next.
    """
    scaled = logits / options.temperature[:, None]
    width = min(options.most_top_k, logits.shape[-1])
    if width > _MOST_TOP_K:
        width = logits.shape[-1]
    values, tokens = scaled.topk(width, dim=-1)
    kept = _kept(values, options)
    noise = gumbel(options.seed, positions, tokens)
    scores = torch.where(kept, values.double() + noise, -torch.inf)
    drawn = tokens.gather(-1, scores.argmax(-1, keepdim=True)).squeeze(-1)
    return torch.where(options.greedy, logits.argmax(-1), drawn)


def gumbel(seed: torch.Tensor, position: torch.Tensor, candidate: torch.Tensor) -> torch.Tensor:
    """Return Gumbel noise, float64 [rows, candidates].

    Args:
        seed: int64 [rows].
        position: int64 [rows].
        candidate: int64 [rows, candidates], hashed by value, wherever it stands.
    """
    row = _mix(position & _MASK ^ 0x9E3779B9)
    row = _mix(row ^ (seed & _MASK))
    row = _mix(row ^ (seed >> 32 & _MASK))
    hashed = _mix(row[:, None] ^ _mix(candidate & _MASK ^ 0x85EBCA6B))
    uniform = (hashed.double() + 0.5) / 2.0**32
    return -torch.log(-torch.log(uniform))


def _kept(values: torch.Tensor, options: DrawOptions) -> torch.Tensor:
    """Return which of the candidates, sorted by falling value, may be drawn: bool like `values`."""
    rank = torch.arange(values.shape[-1], device=values.device)
    kept = rank < options.top_k[:, None]
    probability = torch.where(kept, values, -torch.inf).softmax(-1)
    before = probability.cumsum(-1) - probability
    kept = kept & (before < options.top_p[:, None])
    kept = kept & (probability >= options.min_p[:, None] * probability[:, :1])
    kept[:, 0] = True
    return kept


def _mix(bits: torch.Tensor) -> torch.Tensor:
    """Finalise 32-bit integers held in int64, as murmur3 does; products may wrap."""
    bits = (bits ^ (bits >> 16)) * 0x85EBCA6B & _MASK
    bits = (bits ^ (bits >> 13)) * 0xC2B2AE35 & _MASK
    return bits ^ (bits >> 16)
