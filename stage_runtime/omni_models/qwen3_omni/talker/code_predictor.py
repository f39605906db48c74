"""Residual codes of a frame: a short causal transformer over codes instead of time.

Its sequence is [talker's hidden row, code 0, code 1, …]; the answer to position j is code j + 1.
Sequences are as long as a frame has codes, so keys and values live in one tensor per call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import nn
from torch.nn import functional

Pick = Callable[[int, torch.Tensor], torch.Tensor]
"""Chooses a code per row: from the code's number in the frame and logits [rows, codes]."""


class PredictorConfig(Protocol):
    """What is read of a checkpoint's `code_predictor_config`."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    vocab_size: int
    num_code_groups: int


class Frames(NamedTuple):
    """Frames of one step.

    Attributes:
        codes: int64 [rows, groups].
        feedback: sum of the embeddings of each frame's codes, [rows, hidden].
    """

    codes: torch.Tensor
    feedback: torch.Tensor


class _Cache(NamedTuple):
    """Keys and values of one layer, [rows, heads, groups, head], and the rotation of positions."""

    keys: torch.Tensor
    values: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class _Attention(nn.Module):
    def __init__(self, config: PredictorConfig) -> None:
        super().__init__()
        self.head = config.head_dim
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.q_proj = _linear(config.hidden_size, heads * self.head)
        self.k_proj = _linear(config.hidden_size, kv_heads * self.head)
        self.v_proj = _linear(config.hidden_size, kv_heads * self.head)
        self.o_proj = _linear(heads * self.head, config.hidden_size)
        self.q_norm = nn.RMSNorm(self.head, config.rms_norm_eps)
        self.k_norm = nn.RMSNorm(self.head, config.rms_norm_eps)

    def forward(self, x: torch.Tensor, cache: _Cache, at: int) -> torch.Tensor:
        until = at + x.shape[1]
        queries = self._turned(self.q_norm(self._heads(self.q_proj(x))), cache, at)
        cache.keys[:, :, at:until] = self._turned(
            self.k_norm(self._heads(self.k_proj(x))), cache, at
        )
        cache.values[:, :, at:until] = self._heads(self.v_proj(x))
        seen = functional.scaled_dot_product_attention(
            queries,
            cache.keys[:, :, :until],
            cache.values[:, :, :until],
            is_causal=x.shape[1] > 1,
            enable_gqa=True,
        )
        mixed: torch.Tensor = self.o_proj(seen.transpose(1, 2).flatten(2))
        return mixed

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, self.head)).transpose(1, 2)

    def _turned(self, x: torch.Tensor, cache: _Cache, at: int) -> torch.Tensor:
        cos, sin = (table[at : at + x.shape[2]] for table in (cache.cos, cache.sin))
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat((-high, low), -1) * sin


class _Mlp(nn.Module):
    def __init__(self, config: PredictorConfig) -> None:
        super().__init__()
        self.gate_proj = _linear(config.hidden_size, config.intermediate_size)
        self.up_proj = _linear(config.hidden_size, config.intermediate_size)
        self.down_proj = _linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class _Layer(nn.Module):
    def __init__(self, config: PredictorConfig) -> None:
        super().__init__()
        self.self_attn = _Attention(config)
        self.mlp = _Mlp(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: torch.Tensor, cache: _Cache, at: int) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cache, at)
        out: torch.Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class _Transformer(nn.Module):
    def __init__(self, config: PredictorConfig) -> None:
        super().__init__()
        residual = config.num_code_groups - 1
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.codec_embedding = nn.ModuleList(
            nn.Embedding(config.vocab_size, config.hidden_size) for _ in range(residual)
        )


class CodePredictor(nn.Module):
    """Predicts all residual codes of the frames of one step.

    Args:
        config: the checkpoint's `code_predictor_config`.
        rope_theta: base of its rotary positions.
    """

    def __init__(self, config: PredictorConfig, rope_theta: float) -> None:
        super().__init__()
        self.groups = config.num_code_groups
        self.model = _Transformer(config)
        self.lm_head = nn.ModuleList(
            _linear(config.hidden_size, config.vocab_size) for _ in range(self.groups - 1)
        )
        self._cache_shape = (config.num_key_value_heads, self.groups, config.head_dim)
        half = torch.arange(0, config.head_dim, 2).float() / config.head_dim
        angle = torch.outer(torch.arange(self.groups).float(), 1.0 / rope_theta**half)
        turned = torch.cat((angle, angle), -1)
        self.register_buffer("cos", turned.cos(), persistent=False)
        self.register_buffer("sin", turned.sin(), persistent=False)

    @torch.no_grad()
    def forward(
        self, hidden: torch.Tensor, code: torch.Tensor, embedded: torch.Tensor, pick: Pick
    ) -> Frames:
        """Return the frames that begin with given codes.

        Args:
            hidden: the talker's last hidden row, [rows, hidden].
            code: code 0, int64 [rows].
            embedded: its embedding, [rows, hidden].
        """
        caches = [self._cache(hidden) for _ in self.model.layers]
        codes, feedback, at = [code], embedded.clone(), 0
        x = torch.stack((hidden, embedded), 1)
        for number, (head, embedding) in enumerate(
            zip(self.lm_head, self.model.codec_embedding, strict=True), start=1
        ):
            steps = x.shape[1]
            for layer, cache in zip(self.model.layers, caches, strict=True):
                x = layer(x, cache, at)
            at += steps
            codes.append(pick(number, head(self.model.norm(x[:, -1])).float()))
            row = embedding(codes[-1])
            feedback += row
            x = row[:, None]
        return Frames(torch.stack(codes, 1), feedback)

    def _cache(self, like: torch.Tensor) -> _Cache:
        shape = (like.shape[0], *self._cache_shape)
        cos, sin = self.get_buffer("cos"), self.get_buffer("sin")
        return _Cache(
            like.new_empty(shape), like.new_empty(shape), cos.to(like.dtype), sin.to(like.dtype)
        )
