"""The checkpoint's own Hugging Face processor, part by part.

The parts are called one by one, because each picture and each handful of video frames can then be
processed as soon as it is decoded, and let go: together they would not fit in memory. What comes
out is what one call for everything would give.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from transformers import AutoProcessor
from transformers.models.qwen3_omni_moe.processing_qwen3_omni_moe import (
    Qwen3OmniMoeProcessorKwargs,
)

from omni_models.media.errors import InvalidMedia
from omni_models.media.pictures import Pixels
from omni_models.media.sounds import Samples
from omni_models.qwen3_omni.encoders.vision import Grid
from omni_wire.errors import InvalidRequest

Ids: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Patches:
    """A picture or video as the vision tower reads it.

    Attributes:
        values: `[t * h * w, patch values]`.
        digest: equal for equal values.
        seconds_per_grid: time between grid steps of a video; 0 for a picture.
    """

    values: torch.Tensor
    grid: Grid
    digest: str
    seconds_per_grid: float = 0.0


@dataclass(frozen=True, slots=True)
class Spectra:
    """All sounds of a request as the audio tower reads them.

    Attributes:
        values: log-mel spectra one after the other, `[bins, frames]`.
        lengths: frames of each.
        digests: of each, together with what of its neighbours changes its embeddings.
    """

    values: torch.Tensor
    lengths: tuple[int, ...]
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PromptMedia:
    """Sizes of the media of a prompt, each kind in order of mention."""

    images: Sequence[Grid] = ()
    videos: Sequence[Grid] = ()
    seconds_per_grid: Sequence[float] = ()
    audio_rows: Sequence[int] = ()
    heard: bool = False


class Features:
    """Turns text and media into numbers.

    Args:
        folder: of the checkpoint.
        dtype: of the vision tower: narrower patches than float32 travel in it, as the tower would
            round them first anyway.
    """

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self._processor: Any = AutoProcessor.from_pretrained(folder)
        self._dtype = dtype
        defaults = Qwen3OmniMoeProcessorKwargs._defaults
        self._video_size: Mapping[str, int] = defaults["videos_kwargs"]["size"]
        self._heard: Mapping[str, float] = {
            name: defaults["videos_kwargs"][name]
            for name in ("position_id_per_seconds", "seconds_per_chunk")
        }
        # The tokenizer's settings are part of its state, so threads take turns.
        self._tokenizing = threading.Lock()

    @property
    def sample_rate(self) -> int:
        """Samples per second that sounds must have."""
        return int(self._processor.feature_extractor.sampling_rate)

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Tokens that stand for media, which no text may hold."""
        names = ("image_token", "audio_token", "video_token")
        return tuple(getattr(self._processor, name) for name in names)

    @property
    def longest_token(self) -> int:
        """Characters of the longest token: a text has no fewer tokens than this allows."""
        return max(map(len, self._processor.tokenizer.get_vocab()))

    def picture(self, pixels: Pixels, content_digest: str, where: str) -> Patches:
        """Return a picture's patches.

        Raises:
            InvalidMedia: it has a shape that the model cannot see.
        """
        try:
            made = self._processor.image_processor(images=[pixels], return_tensors="pt")
        except ValueError as error:
            raise InvalidMedia(f"{where}: {error}", details={"field": where}) from error
        grid = _grid(made["image_grid_thw"])
        return Patches(self._narrow(made["pixel_values"]), grid, content_digest)

    def video(
        self, batches: Iterable[Pixels], size: tuple[int, int], where: str
    ) -> tuple[torch.Tensor, Grid]:
        """Return the patches and grid of a video.

        Args:
            batches: frames in order, an even count in each batch.
            size: fewest and most pixels that a frame is resized to.

        Raises:
            InvalidMedia: it has a shape that the model cannot see.
        """
        values, steps, height, width = [], 0, 0, 0
        for frames in batches:
            tensor = torch.from_numpy(frames).permute(0, 3, 1, 2)
            try:
                made = self._processor.video_processor(
                    videos=[tensor],
                    size={"shortest_edge": size[0], "longest_edge": size[1]},
                    cap_pixels_per_frame=False,
                    return_tensors="pt",
                )
            except ValueError as error:
                raise InvalidMedia(f"{where}: {error}", details={"field": where}) from error
            values.append(self._narrow(made["pixel_values_videos"]))
            more, height, width = _grid(made["video_grid_thw"])
            steps += more
        return torch.cat(values), (steps, height, width)

    def frame_size(
        self, smallest: int | None, largest: int | None, frames: int, max_tokens: int
    ) -> tuple[int, int]:
        """Return fewest and most pixels of a frame, so that a video fits the context if it can."""
        processor = self._processor.video_processor
        token_pixels = (processor.patch_size * processor.merge_size) ** 2
        share = max_tokens * token_pixels * processor.temporal_patch_size // frames
        low = smallest or self._video_size["shortest_edge"]
        high = largest or max(low, self._video_size["longest_edge"])
        low = min(low, high)
        return low, max(low, min(high, share))

    @property
    def frames_per_step(self) -> int:
        """Video frames that become one grid step."""
        return int(self._processor.video_processor.temporal_patch_size)

    def sounds(self, samples: Sequence[Samples], chunk: int) -> Spectra:
        """Return the spectra of all sounds of a request.

        Args:
            chunk: mel frames that the audio tower encodes together; a shorter sound is encoded a
                little differently beside a longer one, so that its digest says which.
        """
        made = self._processor.feature_extractor(
            list(samples),
            sampling_rate=self.sample_rate,
            padding=True,
            truncation=False,
            return_attention_mask=True,
            return_tensors="pt",
        )
        lengths = tuple(made["attention_mask"].sum(-1).tolist())
        parts = [
            row[:, :length] for row, length in zip(made["input_features"], lengths, strict=True)
        ]
        padded = min(chunk, max(lengths))
        digests = tuple(
            digest_of(b"sound", padded.to_bytes(4, "big"), part.contiguous().numpy().tobytes())
            for part in parts
        )
        return Spectra(torch.cat(parts, -1), lengths, digests)

    def prompt(
        self, turns: Sequence[Mapping[str, object]], tools: Sequence[object], media: PromptMedia
    ) -> Ids:
        """Return the token ids of a prompt, one placeholder per embedding row.

        Raises:
            InvalidRequest: the checkpoint's chat template refuses the messages.
        """
        import jinja2

        try:
            text = self._processor.apply_chat_template(
                list(turns), tools=list(tools) or None, add_generation_prompt=True, tokenize=False
            )
        except (jinja2.TemplateError, TypeError, KeyError, AttributeError) as error:
            raise InvalidRequest(
                f"the chat template refuses the messages: {error}", details={"field": "messages"}
            ) from error
        (expanded,) = self._processor.replace_multimodal_special_tokens(
            [text],
            iter(media.audio_rows),
            iter(np.array(media.images, np.int64)),
            iter(np.array(media.videos, np.int64)),
            video_second_per_grid=iter(media.seconds_per_grid),
            use_audio_in_video=media.heard,
            **self._heard,
        )
        with self._tokenizing:
            ids = self._processor.tokenizer(expanded, padding=False)["input_ids"]
        return np.asarray(ids, np.int64)

    def _narrow(self, values: torch.Tensor) -> torch.Tensor:
        return values.to(self._dtype) if self._dtype.itemsize < values.dtype.itemsize else values


def digest_of(*parts: bytes) -> str:
    """Return a digest of byte strings, each with its length."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def _grid(grids: torch.Tensor) -> Grid:
    (grid,) = grids.tolist()
    return grid[0], grid[1], grid[2]
