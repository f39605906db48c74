"""The factories of the Qwen3-Omni stages. Their signatures are what `factory.*` may set.

This module imports nothing heavy: a factory imports its stage when it is called, in the process
that runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from omni_runtime.scheduler import Scheduler
    from omni_wire.messages import Payload


def create_preprocessing(
    model_path: str,
    *,
    max_seq_len: int | None = None,
    max_concurrency: int = 16,
    speech_enabled: bool = True,
    video_fps: float = 2.0,
    video_max_frames: int = 768,
    video_min_pixels: int | None = None,
    video_max_pixels: int | None = None,
    use_audio_in_video: bool = False,
    max_media_bytes: int = 256 << 20,
    max_media_pixels: int = 64 << 20,
    max_media_seconds: float = 3600.0,
    media_timeout_s: float = 30.0,
    allow_media_domains: tuple[str, ...] = (),
    allow_media_folder: str | None = None,
    tool_call_parser: str | None = None,
) -> Scheduler:
    """Turn messages and media into token ids and encoder inputs.

    Args:
        model_path: local directory or hub id of the checkpoint.
        max_seq_len: longest prompt plus answer in tokens; the checkpoint's context when null.
        max_concurrency: requests preprocessed at once.
        speech_enabled: whether the pipeline speaks.
        video_fps: frames sampled per second of video.
        video_max_frames: most frames sampled from one video.
        video_min_pixels: fewest pixels a frame is resized to; the processor's when null.
        video_max_pixels: most pixels a frame is resized to; the processor's when null.
        use_audio_in_video: hear the sound track of a video.
        max_media_bytes: most bytes of one media item.
        max_media_pixels: most pixels of a picture, or of one frame of a video.
        max_media_seconds: most seconds of a sound or video.
        media_timeout_s: seconds allowed to fetch and decode the media of a request.
        allow_media_domains: hosts that media may be fetched from; empty allows public addresses.
        allow_media_folder: folder that local media files may be read from; null allows none.
        tool_call_parser: format of tool calls, from decode.
    """
    from omni_models.qwen3_omni.preprocessing import stage

    return stage.build_preprocessing(
        stage.PreprocessingSettings(
            model_path=model_path,
            max_seq_len=max_seq_len,
            max_concurrency=max_concurrency,
            speech_enabled=speech_enabled,
            video=stage.VideoSettings(
                stage.Sampling(video_fps, video_max_frames),
                video_min_pixels,
                video_max_pixels,
                use_audio_in_video,
            ),
            limits=stage.MediaLimits(
                max_bytes=max_media_bytes,
                max_pixels=max_media_pixels,
                max_seconds=max_media_seconds,
                timeout_seconds=media_timeout_s,
            ),
            policy=stage.FetchPolicy(
                tuple(allow_media_domains),
                None if allow_media_folder is None else Path(allow_media_folder),
            ),
            tool_call_parser=tool_call_parser,
        )
    )


def create_image_encoder(
    model_path: str,
    *,
    gpu_id: int | None = None,
    total_gpu_memory_fraction: float | None = None,
    process_total_gpu_memory_fraction: float | None = None,
    device: str | None = None,
    dtype: str | None = None,
    max_batch_size: int = 32,
    max_batch_wait_ms: int = 0,
    cache_entries: int = 64,
    cache_bytes: int = 4 << 30,
) -> Scheduler:
    """Encode pictures and video frames.

    Args:
        model_path: local directory or hub id of the checkpoint.
        gpu_id: device of the stage, from placement; null is the CPU.
        total_gpu_memory_fraction: share of the GPU the stage may use, from placement.
        process_total_gpu_memory_fraction: share used by the process so far, from placement.
        device: kind of device; follows gpu_id when null.
        dtype: torch dtype; the checkpoint's when null.
        max_batch_size: most requests encoded together.
        max_batch_wait_ms: milliseconds a batch waits for company.
        cache_entries: most media items whose embeddings are kept.
        cache_bytes: most bytes of embeddings kept.
    """
    from omni_models.qwen3_omni.encoders.stage import EncoderSettings, build_image_encoder

    return build_image_encoder(
        EncoderSettings(
            model_path=model_path,
            gpu_id=gpu_id,
            memory_fraction=process_total_gpu_memory_fraction or total_gpu_memory_fraction,
            device=device,
            dtype=dtype,
            max_batch_size=max_batch_size,
            max_batch_wait_ms=max_batch_wait_ms,
            cache_entries=cache_entries,
            cache_bytes=cache_bytes,
        )
    )


def create_audio_encoder(
    model_path: str,
    *,
    gpu_id: int | None = None,
    total_gpu_memory_fraction: float | None = None,
    process_total_gpu_memory_fraction: float | None = None,
    device: str | None = None,
    dtype: str | None = None,
    max_batch_size: int = 32,
    max_batch_wait_ms: int = 0,
    cache_entries: int = 64,
    cache_bytes: int = 4 << 30,
) -> Scheduler:
    """Encode sound.

    Args:
        model_path: local directory or hub id of the checkpoint.
        gpu_id: device of the stage, from placement; null is the CPU.
        total_gpu_memory_fraction: share of the GPU the stage may use, from placement.
        process_total_gpu_memory_fraction: share used by the process so far, from placement.
        device: kind of device; follows gpu_id when null.
        dtype: torch dtype; the checkpoint's when null.
        max_batch_size: most requests encoded together.
        max_batch_wait_ms: milliseconds a batch waits for company.
        cache_entries: most media items whose embeddings are kept.
        cache_bytes: most bytes of embeddings kept.
    """
    from omni_models.qwen3_omni.encoders.stage import EncoderSettings, build_audio_encoder

    return build_audio_encoder(
        EncoderSettings(
            model_path=model_path,
            gpu_id=gpu_id,
            memory_fraction=process_total_gpu_memory_fraction or total_gpu_memory_fraction,
            device=device,
            dtype=dtype,
            max_batch_size=max_batch_size,
            max_batch_wait_ms=max_batch_wait_ms,
            cache_entries=cache_entries,
            cache_bytes=cache_bytes,
        )
    )


def create_mm_aggregate(
    model_path: str,
    *,
    gpu_id: int | None = None,
) -> Callable[[Payload], Payload]:
    """Gather prompt and embeddings for the thinker, in the text pipeline.

    Args:
        model_path: local directory or hub id of the checkpoint.
        gpu_id: device of the stage, from placement; null is the CPU.
    """
    return lambda payload: payload


def create_thinker(
    model_path: str,
    *,
    gpu_id: int | None = None,
    total_gpu_memory_fraction: float | None = None,
    process_total_gpu_memory_fraction: float | None = None,
    tp_rank: int = 0,
    tp_size: int = 1,
    nccl_port: int | None = None,
    server_args_overrides: Mapping[str, object] | None = None,
    speech_enabled: bool = False,
    talker_mm_hidden: Literal["hf", "zeros"] = "hf",
    max_seq_len: int | None = None,
    encoder_mem_reserve: float = 0.05,
    enable_async_decode: bool = True,
    async_decode_min_batch_size: int = 1,
    prefill_coalesce_requests: int = 0,
    prefill_coalesce_wait_ms: float = 60.0,
    prefill_coalesce_when_idle: bool = False,
) -> Scheduler:
    """Write the answer's text, token by token.

    Args:
        model_path: local directory or hub id of the checkpoint.
        gpu_id: device of this rank, from placement; null is the CPU.
        total_gpu_memory_fraction: share of the GPU the stage may use, from placement.
        process_total_gpu_memory_fraction: share used by the process so far, from placement.
        tp_rank: tensor-parallel rank, from the launcher.
        tp_size: number of ranks, from the launcher.
        nccl_port: port where the ranks meet, from the launcher.
        server_args_overrides: what is set under engine.*, for SGLang's ServerArgs.
        speech_enabled: whether a talker reads the tokens.
        talker_mm_hidden: what the talker sees at media positions, hf as in transformers or zeros.
        max_seq_len: longest prompt plus answer in tokens; the checkpoint's context when null.
        encoder_mem_reserve: share of the GPU left to encoders beside the thinker.
        enable_async_decode: prepare the next step on the host while this one runs.
        async_decode_min_batch_size: smallest batch decoded that way; smaller ones wait for a step.
        prefill_coalesce_requests: requests gathered before a prefill; 0 gathers none.
        prefill_coalesce_wait_ms: milliseconds a prefill waits to gather them.
        prefill_coalesce_when_idle: gather even when nothing is decoding.
    """
    from omni_models.qwen3_omni.thinker.stage import ThinkerSettings, build_thinker
    from omni_runtime.sglang_bridge.prefill_gathering import PrefillGathering

    return build_thinker(
        ThinkerSettings(
            model_path=model_path,
            gpu_id=gpu_id,
            fraction=process_total_gpu_memory_fraction or total_gpu_memory_fraction,
            tp_rank=tp_rank,
            tp_size=tp_size,
            nccl_port=nccl_port,
            overrides=server_args_overrides or {},
            speech_enabled=speech_enabled,
            talker_mm_hidden=talker_mm_hidden,
            max_seq_len=max_seq_len,
            encoder_mem_reserve=encoder_mem_reserve,
            overlapped=enable_async_decode,
            overlap_min_batch=async_decode_min_batch_size,
            gathering=PrefillGathering(
                requests=prefill_coalesce_requests,
                wait_seconds=prefill_coalesce_wait_ms / 1000,
                when_idle=prefill_coalesce_when_idle,
            )
            if prefill_coalesce_requests > 1
            else None,
        )
    )


def create_decode(model_path: str, *, tool_call_parser: str | None = None) -> Scheduler:
    """Turn token ids into text, never breaking a character, and find calls of tools in it.

    Args:
        model_path: local directory or hub id of the checkpoint.
        tool_call_parser: format of tool calls, by SGLang's name; null refuses tools.
    """
    from omni_models.qwen3_omni.decode.stage import build_decode

    return build_decode(model_path, tool_call_parser)


def create_talker_ar(
    model_path: str,
    *,
    max_running_requests: int,
    gpu_id: int | None = None,
    total_gpu_memory_fraction: float | None = None,
    process_total_gpu_memory_fraction: float | None = None,
    server_args_overrides: Mapping[str, object] | None = None,
    max_seq_len: int | None = None,
    enable_partial_start: bool = True,
    partial_start_min_chunks: int = 1,
    codec_coalesce_frames: int = 10,
    codec_coalesce_early_frames: int = 10,
    codec_coalesce_first_frames: int = 0,
) -> Scheduler:
    """Turn the growing text into frames of codec codes.

    Args:
        model_path: local directory or hub id of the checkpoint.
        max_running_requests: requests that speak at once.
        gpu_id: device of the stage, from placement; null is the CPU.
        total_gpu_memory_fraction: share of the GPU the stage may use, from placement.
        process_total_gpu_memory_fraction: share used by the process so far, from placement.
        server_args_overrides: what is set under engine.*, for SGLang's ServerArgs.
        max_seq_len: longest prompt plus speech in positions; the checkpoint's context when null.
        enable_partial_start: start on the first tokens of the answer instead of all of them.
        partial_start_min_chunks: tokens needed to start.
        codec_coalesce_frames: frames sent together once speech is under way.
        codec_coalesce_early_frames: frames at the beginning that are sent one by one.
        codec_coalesce_first_frames: frames held back for the very first message; 0 holds none.
    """
    from omni_models.qwen3_omni.talker.program import Pacing
    from omni_models.qwen3_omni.talker.stage import TalkerSettings, build_talker

    return build_talker(
        TalkerSettings(
            model_path=model_path,
            gpu_id=gpu_id,
            fraction=process_total_gpu_memory_fraction or total_gpu_memory_fraction,
            overrides=server_args_overrides or {},
            max_running_requests=max_running_requests,
            max_seq_len=max_seq_len,
            pacing=Pacing(
                start_tokens=partial_start_min_chunks if enable_partial_start else None,
                first_frames=codec_coalesce_first_frames,
                early_frames=codec_coalesce_early_frames,
                frames=codec_coalesce_frames,
            ),
        )
    )


def create_code2wav(
    model_path: str,
    *,
    gpu_id: int | None = None,
    total_gpu_memory_fraction: float | None = None,
    process_total_gpu_memory_fraction: float | None = None,
    device: str | None = None,
    dtype: str | None = None,
    stream_chunk_size: int = 10,
    initial_codec_chunk_frames: int = 1,
    codec_state_slots: int = 32,
    max_batch_size: int = 8,
) -> Scheduler:
    """Turn frames of codec codes into sound.

    Args:
        model_path: local directory or hub id of the checkpoint.
        gpu_id: device of the stage, from placement; null is the CPU.
        total_gpu_memory_fraction: share of the GPU the stage may use, from placement.
        process_total_gpu_memory_fraction: share used by the process so far, from placement.
        device: kind of device; follows gpu_id when null.
        dtype: torch dtype; the checkpoint's when null.
        stream_chunk_size: frames decoded at once in steady state, the end of the ramp.
        initial_codec_chunk_frames: frames of the first chunk; chunks double from there.
        codec_state_slots: streams that may be open at once.
        max_batch_size: most streams decoded together.
    """
    from omni_models.qwen3_omni.code2wav.stage import Code2WavSettings, build_code2wav

    return build_code2wav(
        Code2WavSettings(
            model_path=model_path,
            gpu_id=gpu_id,
            memory_fraction=process_total_gpu_memory_fraction or total_gpu_memory_fraction,
            device=device,
            dtype=dtype,
            stream_chunk_size=stream_chunk_size,
            initial_codec_chunk_frames=initial_codec_chunk_frames,
            codec_state_slots=codec_state_slots,
            max_batch_size=max_batch_size,
        )
    )
