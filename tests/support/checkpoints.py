"""Tiny checkpoints, each made once per process, and the published model's configuration."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from omni_models.qwen3_omni.tiny import write_tiny_checkpoint

_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


@cache
def tiny_checkpoint(seed: int = 7, context: int | None = None) -> Path:
    """Return the folder of a tiny checkpoint, read-only by agreement, gone when Python ends.

    Args:
        context: most positions, where others are wanted than it is made with.
    """
    folder = tempfile.TemporaryDirectory(prefix=f"tiny-{seed}-", ignore_cleanup_errors=True)
    _FOLDERS.append(folder)
    write_tiny_checkpoint(Path(folder.name), seed)
    if context is not None:
        _widen(Path(folder.name) / "config.json", context)
    return Path(folder.name)


def _widen(file: Path, context: int) -> None:
    # Nothing else of a checkpoint depends on its context: rotary positions are computed.
    config = json.loads(file.read_text())
    for part in ("thinker_config", "talker_config"):
        config[part]["text_config"]["max_position_embeddings"] = context
    file.write_text(json.dumps(config))


PUBLISHED_TENSORS = 28_010
PUBLISHED_PARAMETERS = 35_259_818_545

_MROPE = {
    "interleaved": True,
    "mrope_section": [24, 20, 20],
    "rope_type": "default",
    "type": "default",
}
_MEDIA_TOKENS = {
    "audio_token_id": 151675,
    "image_token_id": 151655,
    "video_token_id": 151656,
    "audio_start_token_id": 151669,
    "audio_end_token_id": 151670,
    "vision_start_token_id": 151652,
}


def published_config() -> dict[str, Any]:
    """Return what matters of the `config.json` of Qwen/Qwen3-Omni-30B-A3B-Instruct.

    Values: the model's `config.json` on its hub page, as printed by transformers in public reports
    on the model; its index names 28,010 tensors with 35,259,818,545 parameters.
    """
    return {
        "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
        "model_type": "qwen3_omni_moe",
        "dtype": "bfloat16",
        "enable_audio_output": True,
        "im_start_token_id": 151644,
        "im_end_token_id": 151645,
        "tts_pad_token_id": 151671,
        "tts_bos_token_id": 151672,
        "tts_eos_token_id": 151673,
        "system_token_id": 8948,
        "user_token_id": 872,
        "assistant_token_id": 77091,
        "thinker_config": {
            "model_type": "qwen3_omni_moe_thinker",
            "audio_config": _published_audio(),
            "vision_config": _published_vision(),
            "text_config": _published_text(),
            "vision_end_token_id": 151653,
            "user_token_id": 872,
            "position_id_per_seconds": 13,
            "seconds_per_chunk": 2,
            **_MEDIA_TOKENS,
        },
        "talker_config": _published_talker(),
        "code2wav_config": _published_code2wav(),
    }


def _published_text() -> dict[str, Any]:
    return {
        "model_type": "qwen3_omni_moe_text",
        "vocab_size": 152064,
        "hidden_size": 2048,
        "intermediate_size": 768,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "shared_expert_intermediate_size": 0,
        "max_position_embeddings": 65536,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "rope_scaling": {**_MROPE, "mrope_interleaved": True},
        "tie_word_embeddings": False,
    }


def _published_vision() -> dict[str, Any]:
    return {
        "model_type": "qwen3_omni_moe_vision_encoder",
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "in_channels": 3,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": 2048,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [8, 16, 24],
        "hidden_act": "gelu_pytorch_tanh",
    }


def _published_audio() -> dict[str, Any]:
    return {
        "model_type": "qwen3_omni_moe_audio_encoder",
        "d_model": 1280,
        "encoder_layers": 32,
        "encoder_attention_heads": 20,
        "encoder_ffn_dim": 5120,
        "downsample_hidden_size": 480,
        "output_dim": 2048,
        "num_mel_bins": 128,
        "n_window": 50,
        "n_window_infer": 800,
        "conv_chunksize": 500,
        "max_source_positions": 1500,
    }


def _published_talker() -> dict[str, Any]:
    return {
        "model_type": "qwen3_omni_moe_talker",
        "text_config": {
            "model_type": "qwen3_omni_moe_talker_text",
            "vocab_size": 3072,
            "hidden_size": 1024,
            "intermediate_size": 2048,
            "num_hidden_layers": 20,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "moe_intermediate_size": 384,
            "num_experts": 128,
            "num_experts_per_tok": 6,
            "norm_topk_prob": True,
            "shared_expert_intermediate_size": 768,
            "max_position_embeddings": 65536,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1000000,
            "rope_scaling": _MROPE,
            "tie_word_embeddings": False,
        },
        "code_predictor_config": {
            "model_type": "qwen3_omni_moe_talker_code_predictor",
            "vocab_size": 2048,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 5,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "num_code_groups": 16,
            "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1000000,
            "tie_word_embeddings": False,
        },
        "num_code_groups": 16,
        "thinker_hidden_size": 2048,
        "accept_hidden_layer": 24,
        "codec_pad_id": 2148,
        "codec_bos_id": 2149,
        "codec_eos_token_id": 2150,
        "codec_nothink_id": 2155,
        "codec_think_bos_id": 2156,
        "codec_think_eos_id": 2157,
        "speaker_id": {"chelsie": 2301, "ethan": 2302, "aiden": 2303},
        "spatial_merge_size": 2,
        "position_id_per_seconds": 13,
        "seconds_per_chunk": 2,
        **_MEDIA_TOKENS,
    }


def _published_code2wav() -> dict[str, Any]:
    return {
        "codebook_size": 2048,
        "num_quantizers": 16,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "decoder_dim": 1536,
        "sliding_window": 72,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
        "max_position_embeddings": 8000,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000,
        "layer_scale_initial_scale": 0.01,
    }
