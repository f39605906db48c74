"""Building the image and audio encoder stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from omni_models.qwen3_omni.checkpoint_folder import CheckpointFolder, torch_device, torch_dtype
from omni_models.qwen3_omni.encoders.audio import AudioConfig, AudioTower, Sound
from omni_models.qwen3_omni.encoders.batch import Item, MediaEncoder
from omni_models.qwen3_omni.encoders.cache import EmbeddingCache
from omni_models.qwen3_omni.encoders.vision import Grid, VisionConfig, VisionTower
from omni_runtime.batching import BatchLimits
from omni_runtime.simple_scheduler import SimpleScheduler
from omni_wire.errors import StageFailed
from omni_wire.messages import Tree
from omni_wire.torch_end import array_to_torch

MAX_PATCHES = 1 << 16
"""Patches in the tower at once (one video may have more): bounds what activations take."""
MAX_MEL_FRAMES = 1 << 16
"""Mel frames in the tower at once (one sound may have more): eleven minutes."""

M = TypeVar("M", bound=nn.Module)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """Arguments of the encoders' factories that the stages read; see there."""

    model_path: str
    gpu_id: int | None = None
    memory_fraction: float | None = None
    device: str | None = None
    dtype: str | None = None
    max_batch_size: int = 32
    max_batch_wait_ms: int = 0
    cache_entries: int = 64
    cache_bytes: int = 4 << 30


@dataclass(frozen=True, slots=True)
class Pixels:
    """Patches of one picture or video, `[t * h * w, values]`."""

    patches: torch.Tensor
    grid: Grid


class ImageEncoder:
    """Reads pictures and videos out of payloads and encodes them."""

    def __init__(self, tower: VisionTower) -> None:
        self._tower = tower

    def read(self, data: Mapping[str, Tree]) -> Iterator[Item[Pixels]]:
        """Yield the pictures, then the videos, of `encoder_inputs.image_encoder`."""
        inputs = _inputs(data, "image_encoder")
        for kind, name in (("image", "pixel_values"), ("video", "pixel_values_videos")):
            if inputs.get(name) is None:
                continue
            grids: list[Grid] = [
                tuple(row) for row in array_to_torch(inputs[f"{kind}_grid_thw"]).tolist()
            ]
            counts = [t * h * w for t, h, w in grids]
            parts = array_to_torch(inputs[name]).split(counts)
            for patches, grid, digest in zip(parts, grids, inputs[f"{kind}_hashes"], strict=True):
                self._check(patches, grid)
                yield Item(kind, digest, Pixels(patches, grid), len(patches))

    def encode(self, pictures: Sequence[Pixels]) -> Sequence[torch.Tensor]:
        """Return the embeddings of each, deepstack levels beside the main one."""
        patches = torch.cat([picture.patches for picture in pictures])
        grids = [picture.grid for picture in pictures]
        embeddings = self._tower.encode(patches, grids)
        rows = [self._tower.config.rows(grid) for grid in grids]
        split: Sequence[torch.Tensor] = embeddings.split(rows)
        return split

    def _check(self, patches: torch.Tensor, grid: Grid) -> None:
        config = self._tower.config
        if min(grid) < 1 or grid[1] % config.merge or grid[2] % config.merge:
            raise StageFailed(f"a grid of {grid} patches cannot be merged by {config.merge}")
        if patches.shape[1] != config.patch_values:
            raise StageFailed(f"patches of {patches.shape[1]} values, not {config.patch_values}")


class AudioEncoder:
    """Reads sounds out of payloads and encodes them."""

    def __init__(self, tower: AudioTower) -> None:
        self._tower = tower

    def read(self, data: Mapping[str, Tree]) -> Iterator[Item[Sound]]:
        """Yield the sounds of `encoder_inputs.audio_encoder`."""
        inputs = _inputs(data, "audio_encoder")
        features = array_to_torch(inputs["input_features"])
        lengths: list[int] = array_to_torch(inputs["lengths"]).tolist()
        config = self._tower.config
        if features.shape[0] != config.bins or min(lengths) < 1:
            raise StageFailed(f"sounds of shape {tuple(features.shape)} with lengths {lengths}")
        padded_chunk = config.padded_chunk(lengths)
        parts = features.split(lengths, -1)
        for part, length, digest in zip(parts, lengths, inputs["hashes"], strict=True):
            yield Item("audio", digest, Sound(part, padded_chunk), length)

    def encode(self, sounds: Sequence[Sound]) -> Sequence[torch.Tensor]:
        """Return the embeddings of each."""
        embeddings: Sequence[torch.Tensor] = self._tower.encode(sounds)
        return embeddings


def build_image_encoder(settings: EncoderSettings) -> SimpleScheduler:
    """Load the vision tower and return the stage's scheduler."""
    checkpoint = CheckpointFolder.open(settings.model_path)
    with torch.device("meta"):
        tower = VisionTower(
            VisionConfig.parse(checkpoint.config["thinker_config"]["vision_config"])
        )
    encoder = ImageEncoder(_loaded(checkpoint, tower, "thinker.visual.", settings))
    cache = EmbeddingCache(settings.cache_entries, settings.cache_bytes)
    return _scheduler(MediaEncoder(encoder.read, encoder.encode, cache, MAX_PATCHES), settings)


def build_audio_encoder(settings: EncoderSettings) -> SimpleScheduler:
    """Load the audio tower and return the stage's scheduler."""
    checkpoint = CheckpointFolder.open(settings.model_path)
    with torch.device("meta"):
        tower = AudioTower(AudioConfig.parse(checkpoint.config["thinker_config"]["audio_config"]))
    encoder = AudioEncoder(_loaded(checkpoint, tower, "thinker.audio_tower.", settings))
    cache = EmbeddingCache(settings.cache_entries, settings.cache_bytes)
    return _scheduler(MediaEncoder(encoder.read, encoder.encode, cache, MAX_MEL_FRAMES), settings)


def _loaded(checkpoint: CheckpointFolder, tower: M, prefix: str, settings: EncoderSettings) -> M:
    device = torch_device(settings.device, settings.gpu_id, settings.memory_fraction)
    return checkpoint.load(tower, prefix, device, torch_dtype(settings.dtype, checkpoint.config))


def _scheduler(media: MediaEncoder[T], settings: EncoderSettings) -> SimpleScheduler:
    limits = BatchLimits(settings.max_batch_size, settings.max_batch_wait_ms / 1000)
    return SimpleScheduler(compute_batch=media, limits=limits)


def _inputs(data: Mapping[str, Tree], stage: str) -> Mapping[str, Any]:
    inputs: Any = data["encoder_inputs"]
    found: Mapping[str, Any] = inputs[stage]
    return found
