"""Building the code2wav stage."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from omni_models.qwen3_omni.checkpoint_folder import CheckpointFolder, torch_device, torch_dtype
from omni_models.qwen3_omni.code2wav.codec import Codec
from omni_models.qwen3_omni.code2wav.config import CodecConfig
from omni_models.qwen3_omni.code2wav.program import Code2WavProgram, Utterance
from omni_models.qwen3_omni.code2wav.windows import Ramp
from omni_runtime.streaming_scheduler import StreamingScheduler


@dataclass(frozen=True, slots=True)
class Code2WavSettings:
    """Arguments of `factories.create_code2wav` that the stage reads; see there."""

    model_path: str
    gpu_id: int | None = None
    memory_fraction: float | None = None
    device: str | None = None
    dtype: str | None = None
    stream_chunk_size: int = 10
    initial_codec_chunk_frames: int = 1
    codec_state_slots: int = 32
    max_batch_size: int = 8


def build_code2wav(settings: Code2WavSettings) -> StreamingScheduler[Utterance]:
    """Load the vocoder and return the stage's scheduler."""
    codec = load_codec(
        CheckpointFolder.open(settings.model_path),
        torch_device(settings.device, settings.gpu_id, settings.memory_fraction),
        settings.dtype,
    )
    program = Code2WavProgram(
        codec,
        slots=settings.codec_state_slots,
        ramp=Ramp(settings.initial_codec_chunk_frames, settings.stream_chunk_size),
        max_batch_size=settings.max_batch_size,
    )
    # More rows than slots: streams that only have to be ended need none.
    return StreamingScheduler(program, max_rows=2 * settings.codec_state_slots)


def load_codec(checkpoint: CheckpointFolder, device: torch.device, dtype: str | None) -> Codec:
    """Return the vocoder of a checkpoint.

    Raises:
        IncompleteCheckpoint: its weights are not all there.
    """
    with torch.device("meta"):
        codec = Codec(CodecConfig.parse(checkpoint.config["code2wav_config"]))
    wanted = torch_dtype(dtype, checkpoint.config)
    return checkpoint.load(codec, "code2wav.", device, wanted)
