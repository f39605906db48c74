"""The audio tower: mel spectra to embeddings, 13 a second.

Names of modules are those of the checkpoint below `thinker.audio_tower.`. Sound is cut into chunks
of one second, which go through the convolutions alone, and attends within windows of eight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from omni_models.qwen3_omni.encoders.attention import segment_attention

MAX_TIMESCALE = 10_000.0


@dataclass(frozen=True, slots=True)
class AudioConfig:
    """Shape of the tower.

    Attributes:
        chunk: mel frames that go through the convolutions together.
        window: mel frames that attend to each other.
        conv_batch: most chunks in the convolutions at once.
    """

    bins: int
    layers: int
    heads: int
    width: int
    middle: int
    channels: int
    outputs: int
    chunk: int
    window: int
    conv_batch: int

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> AudioConfig:
        """Return the configuration in `audio_config`."""
        return cls(
            bins=config["num_mel_bins"],
            layers=config["encoder_layers"],
            heads=config["encoder_attention_heads"],
            width=config["d_model"],
            middle=config["encoder_ffn_dim"],
            channels=config["downsample_hidden_size"],
            outputs=config["output_dim"],
            chunk=2 * config["n_window"],
            window=config["n_window_infer"],
            conv_batch=config["conv_chunksize"],
        )

    def rows(self, frames: int) -> int:
        """Embeddings of a sound of so many mel frames."""
        whole, rest = divmod(frames, self.chunk)
        return whole * _halved(self.chunk) + _halved(rest)

    def padded_chunk(self, lengths: Sequence[int]) -> int:
        """Frames to which the chunks of one request's sounds are padded: those of the longest.

        Padding is not neutral to the convolutions, so a sound of under a second is encoded a
        little differently beside a longer one, here as in transformers.
        """
        return min(self.chunk, max(lengths))


@dataclass(frozen=True, slots=True)
class Sound:
    """One sound to encode.

    Attributes:
        features: log-mel spectrum, float32 `[bins, frames]`.
        padded_chunk: frames to which its last chunk is padded.
    """

    features: torch.Tensor
    padded_chunk: int

    @property
    def frames(self) -> int:
        """Mel frames, 100 a second."""
        return int(self.features.shape[-1])


class AudioAttention(nn.Module):
    """Attention within a window."""

    def __init__(self, config: AudioConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.q_proj = nn.Linear(config.width, config.width)
        self.k_proj = nn.Linear(config.width, config.width)
        self.v_proj = nn.Linear(config.width, config.width)
        self.out_proj = nn.Linear(config.width, config.width)

    def forward(self, x: torch.Tensor, windows: Sequence[int]) -> torch.Tensor:
        q, k, v = (
            projection(x).unflatten(1, (self.heads, -1))
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        return self.out_proj(segment_attention(q, k, v, windows))


class AudioLayer(nn.Module):
    """Attention and perceptron, each normalised before and added."""

    def __init__(self, config: AudioConfig) -> None:
        super().__init__()
        self.self_attn = AudioAttention(config)
        self.self_attn_layer_norm = nn.LayerNorm(config.width)
        self.fc1 = nn.Linear(config.width, config.middle)
        self.fc2 = nn.Linear(config.middle, config.width)
        self.final_layer_norm = nn.LayerNorm(config.width)

    def forward(self, x: torch.Tensor, windows: Sequence[int]) -> torch.Tensor:
        x = x + self.self_attn(self.self_attn_layer_norm(x), windows)
        x = x + self.fc2(functional.gelu(self.fc1(self.final_layer_norm(x))))
        if x.dtype == torch.float16:
            limit = torch.finfo(x.dtype).max - 1000
            x = x.clamp(-limit, limit)
        return x


class AudioTower(nn.Module):
    """Encodes sounds, any number at once."""

    def __init__(self, config: AudioConfig) -> None:
        super().__init__()
        self.config = config
        width, channels = config.width, config.channels
        self.conv2d1 = nn.Conv2d(1, channels, 3, 2, padding=1)
        self.conv2d2 = nn.Conv2d(channels, channels, 3, 2, padding=1)
        self.conv2d3 = nn.Conv2d(channels, channels, 3, 2, padding=1)
        self.conv_out = nn.Linear(channels * _halved(config.bins), width, bias=False)
        self.layers = nn.ModuleList(AudioLayer(config) for _ in range(config.layers))
        self.ln_post = nn.LayerNorm(width)
        self.proj1 = nn.Linear(width, width)
        self.proj2 = nn.Linear(width, config.outputs)

    @torch.inference_mode()
    def encode(self, sounds: Sequence[Sound]) -> list[torch.Tensor]:
        """Return the embeddings of each sound, `[rows, outputs]`."""
        x = torch.cat(self._convolved(sounds))
        windows = [rows for sound in sounds for rows in self._windows(sound.frames)]
        for layer in self.layers:
            x = layer(x, windows)
        x = self.proj2(functional.gelu(self.proj1(self.ln_post(x))))
        return list(x.split([self.config.rows(sound.frames) for sound in sounds]))

    def _convolved(self, sounds: Sequence[Sound]) -> list[torch.Tensor]:
        """Return what the convolutions make of each chunk, with the position added, in order."""
        weight = self.conv2d1.weight
        chunks = [
            (index, sound.padded_chunk, chunk)
            for index, sound in enumerate(sounds)
            for chunk in sound.features.split(self.config.chunk, -1)
        ]
        found: list[torch.Tensor] = [weight] * len(chunks)
        for length in dict.fromkeys(padded for _, padded, _ in chunks):
            places = [place for place, chunk in enumerate(chunks) if chunk[1] == length]
            for begin in range(0, len(places), self.config.conv_batch):
                batch = places[begin : begin + self.config.conv_batch]
                padded = torch.stack([_padded(chunks[place][2], length) for place in batch])
                rows = self._convolve(padded.to(weight.device, weight.dtype))
                for place, chunk in zip(batch, rows, strict=True):
                    found[place] = chunk[: _halved(chunks[place][2].shape[-1])]
        return found

    def _convolve(self, chunks: torch.Tensor) -> torch.Tensor:
        """`[chunks, bins, frames]` to `[chunks, rows, width]`."""
        x = chunks[:, None]
        for convolution in (self.conv2d1, self.conv2d2, self.conv2d3):
            x = functional.gelu(convolution(x))
        x = self.conv_out(x.permute(0, 3, 1, 2).flatten(2))
        return x + _positions(x.shape[1], self.config.width).to(x.device, x.dtype)

    def _windows(self, frames: int) -> Iterator[int]:
        """Embeddings of each attention window of a sound."""
        rows, window = self.config.rows(frames), self.config.rows(self.config.window)
        yield from (min(window, rows - begin) for begin in range(0, rows, window))


def _halved(length: int) -> int:
    """Length after three convolutions of stride 2."""
    for _ in range(3):
        length = (length + 1) // 2
    return length


def _padded(chunk: torch.Tensor, frames: int) -> torch.Tensor:
    return functional.pad(chunk, (0, frames - chunk.shape[-1]))


def _positions(length: int, width: int) -> torch.Tensor:
    """Sines, then cosines, of positions at rising wavelengths, `[length, width]`."""
    half = width // 2
    step = math.log(MAX_TIMESCALE) / (half - 1)
    angles = torch.arange(length)[:, None] * torch.exp(-step * torch.arange(half).float())
    return torch.cat((angles.sin(), angles.cos()), 1)
