"""The factories of the Qwen3-TTS stages. Their signatures are what `factory.*` may set.

This module imports nothing heavy: a factory imports its stage when it is called, in the process
that runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from omni_models.plan_only import refuse

MODEL = "Qwen3-TTS"


def create_preprocessing(
    model_path: str,
    *,
    max_concurrency: int = 8,
    stream_codec_output: bool = True,
    load_frontend: bool = False,
    device: str | None = None,
    dtype: str | None = None,
    attn_implementation: str | None = None,
) -> NoReturn:
    """Turn text and reference speech into the engine's input.

    Args:
        model_path: local directory or hub id of the checkpoint.
        max_concurrency: requests preprocessed at once.
        stream_codec_output: let the vocoder read codec frames as they come.
        load_frontend: load the text frontend here, because the engine is in another process.
        device: kind of device of the frontend.
        dtype: torch dtype of the frontend.
        attn_implementation: attention kernel of the frontend.
    """
    refuse(MODEL)


def create_vocoder(
    model_path: str,
    *,
    gpu_id: int | None = None,
    total_gpu_memory_fraction: float | None = None,
    process_total_gpu_memory_fraction: float | None = None,
    device: str | None = None,
    dtype: str | None = None,
    attn_implementation: str | None = None,
    max_batch_size: int | None = None,
    max_batch_wait_ms: int | None = None,
    stream_stride: int = 16,
    stream_followup_stride: int = 8,
    initial_chunk_frames: int | None = None,
    stream_chunk_ramp: bool = True,
    stream_left_context_frames: int = 16,
    initial_batch_size: int | None = None,
    initial_batch_wait_ms: int | None = None,
    followup_batch_size: int | None = None,
    followup_batch_wait_ms: int | None = None,
    followup_worker_count: int = 2,
    initial_cuda_graph: bool = True,
    followup_cuda_graph: bool = True,
    codec_state_slots: int = 64,
    suppress_silence: bool = False,
    running_stream_count: int = 64,
    enable_deterministic_inference: bool = False,
) -> NoReturn:
    """Turn codec frames into sound as they come.

    Args:
        model_path: local directory or hub id of the checkpoint.
        gpu_id: device of the stage, from placement; null is the CPU.
        total_gpu_memory_fraction: share of the GPU the stage may use, from placement.
        process_total_gpu_memory_fraction: share used by the process so far, from placement.
        device: kind of device; follows gpu_id when null.
        dtype: torch dtype; the checkpoint's when null.
        attn_implementation: attention kernel.
        max_batch_size: most streams decoded together; decided per phase when null.
        max_batch_wait_ms: milliseconds a batch waits for company; decided per phase when null.
        stream_stride: frames of the first full chunk.
        stream_followup_stride: frames of every later chunk.
        initial_chunk_frames: frames of the very first chunk; the stride when null.
        stream_chunk_ramp: let chunks grow from the first one to the stride.
        stream_left_context_frames: frames decoded again for context.
        initial_batch_size: most streams whose first chunk is decoded together.
        initial_batch_wait_ms: milliseconds a first chunk waits for company.
        followup_batch_size: most streams whose later chunks are decoded together.
        followup_batch_wait_ms: milliseconds a later chunk waits for company.
        followup_worker_count: threads that decode later chunks.
        initial_cuda_graph: capture the first chunk as a CUDA graph.
        followup_cuda_graph: capture later chunks as CUDA graphs.
        codec_state_slots: streams that may be open at once.
        suppress_silence: cut silence at the beginning.
        running_stream_count: streams the engine may feed at once.
        enable_deterministic_inference: decode each stream alone of what else is in the batch.
    """
    refuse(MODEL)


def create_tts_engine(
    model_path: str,
    *,
    gpu_id: int | None = None,
    total_gpu_memory_fraction: float | None = None,
    process_total_gpu_memory_fraction: float | None = None,
    tp_rank: int = 0,
    tp_size: int = 1,
    nccl_port: int | None = None,
    server_args_overrides: Mapping[str, object] | None = None,
    device: str | None = None,
    dtype: str | None = None,
    attn_implementation: str | None = None,
    prefill_coalesce_requests: int = 0,
    prefill_coalesce_wait_ms: float = 60.0,
    reference_encoder_cuda_graph_bucket_frames: tuple[int, ...] = (),
    leading_silence_mask_frames: int = 2,
) -> NoReturn:
    """Write codec frames.

    Args:
        model_path: local directory or hub id of the checkpoint.
        gpu_id: device of this rank, from placement; null is the CPU.
        total_gpu_memory_fraction: share of the GPU the stage may use, from placement.
        process_total_gpu_memory_fraction: share used by the process so far, from placement.
        tp_rank: tensor-parallel rank, from the launcher.
        tp_size: number of ranks, from the launcher.
        nccl_port: port where the ranks meet, from the launcher.
        server_args_overrides: what is set under engine.*, for SGLang's ServerArgs.
        device: kind of device of the reference encoder; follows gpu_id when null.
        dtype: torch dtype; the checkpoint's when null.
        attn_implementation: attention kernel of the reference encoder.
        prefill_coalesce_requests: requests gathered before a prefill; 0 gathers none.
        prefill_coalesce_wait_ms: milliseconds a prefill waits to gather them.
        reference_encoder_cuda_graph_bucket_frames: reference lengths captured as CUDA graphs.
        leading_silence_mask_frames: frames at the beginning in which silence is not sampled.
    """
    refuse(MODEL)
