"""The vision tower: patches of pictures and video frames to embeddings.

Names of modules are those of the checkpoint below `thinker.visual.`. Patches of a picture come in
blocks of `merge * merge`, each of which becomes one embedding. Each picture, and each frame of a
video, attends to itself alone, so what others are encoded with it changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn import functional

from omni_models.qwen3_omni.encoders.attention import segment_attention

Grid: TypeAlias = tuple[int, int, int]
"""Time, height and width in patches."""

ROPE_THETA = 10_000.0


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """Shape of the tower.

    Attributes:
        table_side: side of the square table of learnt positions.
        deepstack: blocks after which a further level of embeddings branches off.
    """

    depth: int
    width: int
    middle: int
    heads: int
    channels: int
    patch: int
    temporal_patch: int
    merge: int
    outputs: int
    table_side: int
    deepstack: tuple[int, ...]
    activation: str

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> VisionConfig:
        """Return the configuration in `vision_config`."""
        return cls(
            depth=config["depth"],
            width=config["hidden_size"],
            middle=config["intermediate_size"],
            heads=config["num_heads"],
            channels=config["in_channels"],
            patch=config["patch_size"],
            temporal_patch=config["temporal_patch_size"],
            merge=config["spatial_merge_size"],
            outputs=config["out_hidden_size"],
            table_side=math.isqrt(config["num_position_embeddings"]),
            deepstack=tuple(config["deepstack_visual_indexes"]),
            activation=config["hidden_act"],
        )

    @property
    def patch_values(self) -> int:
        """Numbers in one patch."""
        return self.channels * self.temporal_patch * self.patch**2

    @property
    def row_width(self) -> int:
        """Numbers in one embedding, deepstack levels included."""
        return self.outputs * (1 + len(self.deepstack))

    def rows(self, grid: Grid) -> int:
        """Embeddings of one picture or video."""
        return math.prod(grid) // self.merge**2


class PatchEmbed(nn.Module):
    """A patch to a vector: a convolution whose stride is its kernel is a matrix product."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        kernel = (config.temporal_patch, config.patch, config.patch)
        self.proj = nn.Conv3d(config.channels, config.width, kernel, stride=kernel)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        return functional.linear(patches, self.proj.weight.flatten(1), self.proj.bias)


class VisionAttention(nn.Module):
    """Attention within a picture or frame."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.proj = nn.Linear(config.width, config.width)

    def forward(self, x: torch.Tensor, places: Places) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(1, (3, self.heads, -1)).unbind(1)
        y = segment_attention(places.rotate(q), places.rotate(k), v, places.segments)
        return self.proj(y)


class VisionMlp(nn.Module):
    """Two layers."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.approximate = "tanh" if config.activation == "gelu_pytorch_tanh" else "none"
        self.linear_fc1 = nn.Linear(config.width, config.middle)
        self.linear_fc2 = nn.Linear(config.middle, config.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear_fc2(functional.gelu(self.linear_fc1(x), approximate=self.approximate))


class VisionBlock(nn.Module):
    """Attention and perceptron, each normalised before and added."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=1e-6)
        self.norm2 = nn.LayerNorm(config.width, eps=1e-6)
        self.attn = VisionAttention(config)
        self.mlp = VisionMlp(config)

    def forward(self, x: torch.Tensor, places: Places) -> torch.Tensor:
        x = x + self.attn(self.norm1(x), places)
        return x + self.mlp(self.norm2(x))


class PatchMerger(nn.Module):
    """A block of patches to one embedding."""

    def __init__(self, config: VisionConfig, *, norm_merged: bool) -> None:
        super().__init__()
        self.merged = config.width * config.merge**2
        self.norm_merged = norm_merged
        self.ln_q = nn.LayerNorm(self.merged if norm_merged else config.width, eps=1e-6)
        self.mlp = nn.ModuleList(
            [
                nn.Linear(self.merged, self.merged),
                nn.GELU(),
                nn.Linear(self.merged, config.outputs),
            ]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.norm_merged:
            x = self.ln_q(x.view(-1, self.merged))
        else:
            x = self.ln_q(x).view(-1, self.merged)
        for layer in self.mlp:
            x = layer(x)
        return x


class VisionTower(nn.Module):
    """Encodes pictures and videos, any number at once."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbed(config)
        self.pos_embed = nn.Embedding(config.table_side**2, config.width)
        self.blocks = nn.ModuleList(VisionBlock(config) for _ in range(config.depth))
        self.merger = PatchMerger(config, norm_merged=False)
        self.merger_list = nn.ModuleList(
            PatchMerger(config, norm_merged=True) for _ in config.deepstack
        )

    @torch.inference_mode()
    def encode(self, patches: torch.Tensor, grids: Sequence[Grid]) -> torch.Tensor:
        """Return the embeddings of all pictures, one after the other.

        Args:
            patches: `[patches, channels * temporal_patch * patch²]`.
            grids: of each picture or video.

        Returns:
            `[patches / merge², outputs * (1 + levels)]`: the main embedding, then the deepstack
            levels.
        """
        weight = self.pos_embed.weight
        places = Places(self.config, grids, weight.device)
        x = self.patch_embed(patches.to(weight.device, weight.dtype))
        x = x + places.look_up(self.pos_embed).to(x.dtype)
        levels: list[torch.Tensor] = []
        for number, block in enumerate(self.blocks):
            x = block(x, places)
            if number in self.config.deepstack:
                levels.append(self.merger_list[len(levels)](x))
        return torch.cat([self.merger(x), *levels], -1)


class Places:
    """Where each patch is in its picture.

    Attributes:
        segments: patches of each picture or frame.
    """

    def __init__(self, config: VisionConfig, grids: Sequence[Grid], device: torch.device) -> None:
        self._config = config
        self.segments = [h * w for t, h, w in grids for _ in range(t)]
        found = [_rows_and_columns(grid, config.merge, device) for grid in grids]
        self._rows = torch.cat([rows for rows, _ in found])
        self._columns = torch.cat([columns for _, columns in found])
        sizes = torch.tensor([(t * h * w, h, w) for t, h, w in grids], device=device)
        self._heights = torch.repeat_interleave(sizes[:, 1], sizes[:, 0])
        self._widths = torch.repeat_interleave(sizes[:, 2], sizes[:, 0])
        spatial = config.width // config.heads // 2
        exponents = torch.arange(0, spatial, 2, dtype=torch.float, device=device) / spatial
        frequencies = 1.0 / ROPE_THETA**exponents
        angles = torch.stack((self._rows, self._columns), 1)[..., None].float() * frequencies
        self._cos, self._sin = (f(angles).flatten(1).repeat(1, 2) for f in (torch.cos, torch.sin))

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Turn queries or keys `[patches, heads, head_dim]` by row and column, in float32."""
        wide = x.float()
        left, right = wide.chunk(2, -1)
        turned = wide * self._cos[:, None] + torch.cat((-right, left), -1) * self._sin[:, None]
        return turned.to(x.dtype)

    def look_up(self, table: nn.Embedding) -> torch.Tensor:
        """Return the learnt positions, interpolated bilinearly to each picture's size."""
        side = self._config.table_side
        rows, row_weights = _taps(self._rows, self._heights, side)
        columns, column_weights = _taps(self._columns, self._widths, side)
        indices = (rows[:, :, None] * side + columns[:, None, :]).flatten(1)
        weights = (row_weights[:, :, None] * column_weights[:, None, :]).flatten(1)
        return (table(indices) * weights[..., None]).sum(1)


def _rows_and_columns(
    grid: Grid, merge: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and column of each patch, in blocks of `merge * merge`, frame after frame."""
    t, h, w = grid
    blocks = (h // merge, merge, w // merge, merge)
    rows = torch.arange(h, device=device)[:, None].expand(h, w)
    columns = torch.arange(w, device=device).expand(h, w)
    ordered = (x.reshape(blocks).transpose(1, 2).flatten().repeat(t) for x in (rows, columns))
    return next(ordered), next(ordered)


def _taps(
    places: torch.Tensor, lengths: torch.Tensor, side: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The two entries of an axis of the table that a place lies between, and their weights."""
    exact = places.float() * (side - 1) / (lengths - 1).clamp(min=1)
    floor = exact.floor()
    both = torch.arange(2, device=places.device)
    taps = (floor.long()[:, None] + both).clamp(0, side - 1)
    weights = (1 - (exact[:, None] - floor[:, None] - both).abs()).clamp(min=0)
    return taps, weights
