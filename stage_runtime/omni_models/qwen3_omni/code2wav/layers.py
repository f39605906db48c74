"""Layers of the vocoder that can go on where they stopped.

Names of modules are those of the checkpoint. A layer with a memory is told its own name when the
model is built, under which `History` keeps it.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from omni_models.qwen3_omni.code2wav.config import CodecConfig
from omni_models.qwen3_omni.code2wav.history import History, Memory


class CausalConv(nn.Module):
    """A convolution of stride 1 that sees no future: `[rows, channels, columns]` to the same."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, dilation: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, dilation=dilation, groups=groups)
        self.memory = Memory("", (inputs, (kernel - 1) * dilation))

    def forward(self, x: torch.Tensor, history: History) -> torch.Tensor:
        if self.memory.shape[-1]:
            x = history.extend(self.memory.name, x)
        return self.conv(x)


class Upsampling(nn.Module):
    """A transposed convolution, trimmed on both sides by what kernel and stride differ.

    With a kernel of two strides, each column gives its outputs together with the column before it;
    the very first column has none before it and gives nothing.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(inputs, outputs, kernel, stride=stride)
        self.trim = kernel - stride
        self.memory = Memory("", (inputs, 1 if self.trim else 0))

    def forward(self, x: torch.Tensor, history: History) -> torch.Tensor:
        if not self.trim:
            return self.conv(x)
        whole = history.extend(self.memory.name, x)
        y = self.conv(x if history.begins else whole)
        return y[..., self.trim : y.shape[-1] - self.trim]


class ConvNeXt(nn.Module):
    """A depthwise convolution and a two-layer perceptron, added to the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.dwconv = CausalConv(channels, channels, 7, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.pwconv1 = nn.Linear(channels, 4 * channels)
        self.pwconv2 = nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.empty(channels))

    def forward(self, x: torch.Tensor, history: History) -> torch.Tensor:
        y = self.norm(self.dwconv(x, history).transpose(1, 2))
        y = self.gamma * self.pwconv2(functional.gelu(self.pwconv1(y)))
        return x + y.transpose(1, 2)


class Snake(nn.Module):
    """`x + sin²(x·eᵅ) / eᵝ`, channel by channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.empty(channels))
        self.beta = nn.Parameter(torch.empty(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        alpha, beta = (p.exp()[:, None] for p in (self.alpha, self.beta))
        return x + (1.0 / (beta + 1e-9)) * torch.sin(x * alpha).square()


class ResidualUnit(nn.Module):
    """Two convolutions added to the input."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.act1 = Snake(channels)
        self.conv1 = CausalConv(channels, channels, 7, dilation)
        self.act2 = Snake(channels)
        self.conv2 = CausalConv(channels, channels, 1)

    def forward(self, x: torch.Tensor, history: History) -> torch.Tensor:
        y = self.conv1(self.act1(x), history)
        return self.conv2(self.act2(y), history) + x


class DecoderBlock(nn.Module):
    """Halves the channels and multiplies the columns by `rate`."""

    def __init__(self, channels: int, rate: int) -> None:
        super().__init__()
        halved = channels // 2
        self.block = nn.ModuleList(
            [
                Snake(channels),
                Upsampling(channels, halved, 2 * rate, rate),
                *(ResidualUnit(halved, dilation) for dilation in (1, 3, 9)),
            ]
        )

    def forward(self, x: torch.Tensor, history: History) -> torch.Tensor:
        snake, upsampling, *units = self.block
        x = upsampling(snake(x), history)
        for unit in units:
            x = unit(x, history)
        return x


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis, computed in float32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * scaled.to(x.dtype)


class LayerScale(nn.Module):
    """A factor per channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * x


class GatedMlp(nn.Module):
    """`down(silu(gate(x)) · up(x))`."""

    def __init__(self, width: int, middle: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, middle, bias=False)
        self.up_proj = nn.Linear(width, middle, bias=False)
        self.down_proj = nn.Linear(middle, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class WindowAttention(nn.Module):
    """Attention to the last frames of a stream, itself included; `[rows, frames, width]`."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.head_dim, self.heads = config.head_dim, config.heads
        width, keys = config.hidden_size, config.key_value_heads * config.head_dim
        self.shared = config.heads // config.key_value_heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, keys, bias=False)
        self.v_proj = nn.Linear(width, keys, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        # Kept with frames on the last axis, as every memory is.
        self.memory = Memory("", (2 * keys, config.window - 1))

    def forward(self, x: torch.Tensor, angles: Angles, history: History) -> torch.Tensor:
        q = angles.rotate(self._by_head(self.q_proj(x)))
        k = angles.rotate(self._by_head(self.k_proj(x)))
        new = torch.cat((k.transpose(1, 2).flatten(2), self.v_proj(x)), -1)
        whole = history.extend(self.memory.name, new.transpose(1, 2)).transpose(1, 2)
        keys, values = (self._by_head(half) for half in whole.chunk(2, -1))
        if self.shared > 1:
            keys, values = (t.repeat_interleave(self.shared, 1) for t in (keys, values))
        y = functional.scaled_dot_product_attention(q, keys, values, attn_mask=angles.mask)
        return self.o_proj(y.transpose(1, 2).flatten(2))

    def _by_head(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


class Angles:
    """Rotary angles and attention mask of the frames of one step.

    Attributes:
        mask: bool `[rows, 1, frames, window - 1 + frames]`, true where a frame attends.
    """

    def __init__(self, config: CodecConfig, frames: int, history: History, like: torch.Tensor):
        device = like.device
        half = torch.arange(0, config.head_dim, 2, device=device, dtype=torch.float32)
        frequencies = 1.0 / config.rope_theta ** (half / config.head_dim)
        step = torch.arange(frames, device=device)
        positions = history.frames_before[:, None] + step
        angles = (positions[..., None].float() * frequencies).repeat(1, 1, 2)[:, None]
        self._cos, self._sin = angles.cos().to(like.dtype), angles.sin().to(like.dtype)
        past = config.window - 1
        # Column of a key, counted from the first frame of the step.
        columns = torch.arange(-past, frames, device=device)
        distance = step[:, None] - columns
        near = (distance >= 0) & (distance < config.window)
        real = columns >= -history.frames_before[:, None]
        self.mask = (near & real[:, None])[:, None]

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Turn queries or keys `[rows, heads, frames, head_dim]` by their positions."""
        left, right = x.chunk(2, -1)
        return x * self._cos + torch.cat((-right, left), -1) * self._sin


class TransformerLayer(nn.Module):
    """Attention and perceptron, each scaled and added."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn = WindowAttention(config)
        self.mlp = GatedMlp(width, config.intermediate_size)
        self.input_layernorm = RMSNorm(width, eps)
        self.post_attention_layernorm = RMSNorm(width, eps)
        self.self_attn_layer_scale = LayerScale(width)
        self.mlp_layer_scale = LayerScale(width)

    def forward(self, x: torch.Tensor, angles: Angles, history: History) -> torch.Tensor:
        y = self.self_attn(self.input_layernorm(x), angles, history)
        x = x + self.self_attn_layer_scale(y)
        return x + self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x)))
