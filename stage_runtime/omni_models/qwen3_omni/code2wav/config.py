"""What the vocoder's configuration says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SAMPLE_RATE = 24_000
"""Samples per second of the sound; the checkpoint does not say it."""


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """Shape of the vocoder.

    Attributes:
        codebook_size, groups: codes per codebook, codebooks per frame.
        hidden_size, intermediate_size, layers, heads, key_value_heads: of the transformer.
        window: frames that a frame attends to, itself included.
        decoder_dim: channels of the first convolution; each upsampling halves them.
        upsample_rates: of the convolutional decoder.
        upsampling_ratios: between transformer and decoder.
    """

    codebook_size: int
    groups: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    key_value_heads: int
    window: int
    rms_norm_eps: float
    rope_theta: float
    decoder_dim: int
    upsample_rates: tuple[int, ...]
    upsampling_ratios: tuple[int, ...]

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> CodecConfig:
        """Return the configuration in `code2wav_config`, in either spelling of the rope."""
        rope = config.get("rope_parameters") or {}
        return cls(
            codebook_size=config["codebook_size"],
            groups=config["num_quantizers"],
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            key_value_heads=config["num_key_value_heads"],
            window=config["sliding_window"],
            rms_norm_eps=config["rms_norm_eps"],
            rope_theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10_000),
            decoder_dim=config["decoder_dim"],
            upsample_rates=tuple(config["upsample_rates"]),
            upsampling_ratios=tuple(config["upsampling_ratios"]),
        )

    @property
    def head_dim(self) -> int:
        """Size of an attention head."""
        return self.hidden_size // self.heads

    @property
    def samples_per_frame(self) -> int:
        """1920 in the published model: 80 ms."""
        return math.prod(self.upsample_rates) * math.prod(self.upsampling_ratios)

    @property
    def lost_samples(self) -> int:
        """Samples that a stream's first frame lacks (555 in the published model).

        A transposed convolution gives nothing for its first input column but together with the
        second, so every upsampling of the decoder starts one of its own steps late.
        """
        lost = 0
        for rate in self.upsample_rates:
            lost = (lost + 1) * rate
        return lost

    def samples(self, frames: int) -> int:
        """Samples of a stream of `frames` frames."""
        return max(0, frames * self.samples_per_frame - self.lost_samples)
