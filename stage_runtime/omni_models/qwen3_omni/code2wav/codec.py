"""The vocoder: a transformer over frames, then convolutions up to samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from omni_models.qwen3_omni.code2wav.config import CodecConfig
from omni_models.qwen3_omni.code2wav.history import History, Memory, StreamStates
from omni_models.qwen3_omni.code2wav.layers import (
    Angles,
    CausalConv,
    ConvNeXt,
    DecoderBlock,
    RMSNorm,
    Snake,
    TransformerLayer,
    Upsampling,
)


class PreTransformer(nn.Module):
    """Layers over frames, and the final norm."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: torch.Tensor, angles: Angles, history: History) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, angles, history)
        return self.norm(x)


class Codec(nn.Module):
    """Decodes frames of codes of several streams at once, each where it stopped.

    Parameters have the names of the checkpoint below `code2wav.`.

    Attributes:
        memories: what its layers remember of a stream, for `StreamStates`.
    """

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.code_embedding = nn.Embedding(config.codebook_size * config.groups, width)
        self.pre_transformer = PreTransformer(config)
        self.upsample = nn.ModuleList(
            nn.ModuleList([Upsampling(width, width, ratio, ratio), ConvNeXt(width)])
            for ratio in config.upsampling_ratios
        )
        self.decoder = nn.ModuleList(_decoder(config))
        self.memories = self._name_memories()

    def states(self, slots: int) -> StreamStates:
        """Return memory for `slots` streams, where the weights are."""
        weight = self.code_embedding.weight
        return StreamStates(self.memories, slots, weight.device, weight.dtype)

    @torch.inference_mode()
    def decode(self, codes: torch.Tensor, history: History) -> torch.Tensor:
        """Return the sound that frames complete.

        Args:
            codes: int64 `[rows, groups, frames]`.
            history: of the streams of the rows; it is brought up to date.

        Returns:
            samples in [-1, 1], `[rows, 1920 frames]`, 555 fewer where the streams begin.
        """
        config = self.config
        offsets = torch.arange(config.groups, device=codes.device) * config.codebook_size
        x = self.code_embedding(codes + offsets[:, None]).mean(1)
        angles = Angles(config, codes.shape[-1], history, x)
        x = self.pre_transformer(x, angles, history).transpose(1, 2)
        for upsampling, block in self.upsample:
            x = block(upsampling(x, history), history)
        for part in self.decoder:
            x = part(x) if isinstance(part, Snake) else part(x, history)
        return x.squeeze(1).clamp(-1, 1)

    def _name_memories(self) -> tuple[Memory, ...]:
        found: list[Memory] = []
        for name, module in self.named_modules():
            memory = getattr(module, "memory", None)
            if isinstance(memory, Memory) and memory.shape[-1]:
                module.memory = replace(memory, name=name)
                found.append(module.memory)
        return tuple(found)


def _decoder(config: CodecConfig) -> Sequence[nn.Module]:
    parts: list[nn.Module] = [CausalConv(config.hidden_size, config.decoder_dim, 7)]
    channels = config.decoder_dim
    for rate in config.upsample_rates:
        parts.append(DecoderBlock(channels, rate))
        channels //= 2
    return [*parts, Snake(channels), CausalConv(channels, 1, 7)]
