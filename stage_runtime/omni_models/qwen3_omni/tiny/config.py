"""The tiny checkpoint's `config.json`: the published keys and spelling, with small numbers."""

from __future__ import annotations

from typing import Any

from omni_models.qwen3_omni.tiny.tokenizer import Vocabulary

CODEBOOK = 64
CODE_GROUPS = 4
SPEAKERS = ("chelsie", "ethan", "aiden")

_HIDDEN = 64
_TALKER_HIDDEN = 48
_HEAD_DIM = 16
_MROPE_SECTION = (4, 2, 2)
_CONTEXT = 4096
_VOCABULARY_MULTIPLE = 64
# The talker's vocabulary is the codebook and 1024 more, control codes among them, as in the real
# model, whose talker never samples those 1024 but for the end.
_CONTROL_CODES = 1024


def tiny_config(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the configuration of a model that has the real one's every part.

    `accept_hidden_layer` (4) exceeds the number of deepstack levels (3), as 24 does in the real
    model: below it, implementations differ in whether a hidden state holds the deepstack addition.
    """
    token = vocabulary.id_of
    return {
        "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
        "model_type": "qwen3_omni_moe",
        "dtype": "float32",
        "enable_audio_output": True,
        "im_start_token_id": token("<|im_start|>"),
        "im_end_token_id": token("<|im_end|>"),
        "tts_pad_token_id": token("<tts_pad>"),
        "tts_bos_token_id": token("<tts_text_bos>"),
        "tts_eos_token_id": token("<tts_text_eod>"),
        "system_token_id": token("system"),
        "user_token_id": token("user"),
        "assistant_token_id": token("assistant"),
        "thinker_config": _thinker(vocabulary),
        "talker_config": _talker(vocabulary),
        "code2wav_config": _code2wav(),
    }


def _thinker(vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "model_type": "qwen3_omni_moe_thinker",
        "audio_config": _audio(),
        "vision_config": _vision(),
        "text_config": _text(vocabulary),
        "vision_end_token_id": vocabulary.id_of("<|vision_end|>"),
        "user_token_id": vocabulary.id_of("user"),
        "position_id_per_seconds": 13,
        "seconds_per_chunk": 2,
        **_media_tokens(vocabulary),
    }


def _media_tokens(vocabulary: Vocabulary) -> dict[str, int]:
    token = vocabulary.id_of
    return {
        "audio_token_id": token("<|audio_pad|>"),
        "image_token_id": token("<|image_pad|>"),
        "video_token_id": token("<|video_pad|>"),
        "audio_start_token_id": token("<|audio_start|>"),
        "audio_end_token_id": token("<|audio_end|>"),
        "vision_start_token_id": token("<|vision_start|>"),
    }


def _text(vocabulary: Vocabulary) -> dict[str, Any]:
    # Rounded up as the real vocabulary is, so that some ids stand for no token at all.
    rounded = -(-vocabulary.size // _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE
    return {
        "model_type": "qwen3_omni_moe_text",
        "vocab_size": rounded,
        "hidden_size": _HIDDEN,
        "intermediate_size": 96,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": _HEAD_DIM,
        "moe_intermediate_size": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "shared_expert_intermediate_size": 0,
        "use_qk_norm": True,
        "rope_scaling": {**_mrope(), "mrope_interleaved": True},
        **_decoder(),
    }


def _vision() -> dict[str, Any]:
    return {
        "model_type": "qwen3_omni_moe_vision_encoder",
        "depth": 4,
        "hidden_size": 32,
        "hidden_act": "gelu_pytorch_tanh",
        "intermediate_size": 64,
        "num_heads": 2,
        "in_channels": 3,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": _HIDDEN,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0, 1, 2],
        "tokens_per_second": 2,
        "initializer_range": 0.02,
    }


def _audio() -> dict[str, Any]:
    return {
        "model_type": "qwen3_omni_moe_audio_encoder",
        "num_mel_bins": 128,
        "encoder_layers": 2,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "d_model": 32,
        "output_dim": _HIDDEN,
        "downsample_hidden_size": 16,
        "n_window": 50,
        "n_window_infer": 800,
        "conv_chunksize": 500,
        "max_source_positions": 1500,
        "activation_function": "gelu",
        "scale_embedding": False,
        "initializer_range": 0.02,
    }


def _talker(vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "model_type": "qwen3_omni_moe_talker",
        "text_config": {
            "model_type": "qwen3_omni_moe_talker_text",
            "vocab_size": CODEBOOK + _CONTROL_CODES,
            "hidden_size": _TALKER_HIDDEN,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": _HEAD_DIM,
            "moe_intermediate_size": 32,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "shared_expert_intermediate_size": 32,
            "rope_scaling": _mrope(),
            **_decoder(),
        },
        "code_predictor_config": {
            "model_type": "qwen3_omni_moe_talker_code_predictor",
            "vocab_size": CODEBOOK,
            "hidden_size": _TALKER_HIDDEN,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": _HEAD_DIM,
            "num_code_groups": CODE_GROUPS,
            "rope_scaling": None,
            **_decoder(),
        },
        "num_code_groups": CODE_GROUPS,
        "thinker_hidden_size": _HIDDEN,
        "accept_hidden_layer": 4,
        "codec_pad_id": CODEBOOK + 100,
        "codec_bos_id": CODEBOOK + 101,
        "codec_eos_token_id": CODEBOOK + 102,
        "codec_nothink_id": CODEBOOK + 107,
        "codec_think_bos_id": CODEBOOK + 108,
        "codec_think_eos_id": CODEBOOK + 109,
        "speaker_id": {name: CODEBOOK + 253 + place for place, name in enumerate(SPEAKERS)},
        "spatial_merge_size": 2,
        "position_id_per_seconds": 13,
        "seconds_per_chunk": 2,
        "output_router_logits": False,
        **_media_tokens(vocabulary),
    }


def _code2wav() -> dict[str, Any]:
    return {
        "codebook_size": CODEBOOK,
        "num_quantizers": CODE_GROUPS,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "decoder_dim": 32,
        "sliding_window": 72,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
        "max_position_embeddings": 8000,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000,
        "layer_scale_initial_scale": 0.01,
        "attention_bias": False,
        "attention_dropout": 0,
    }


def _mrope() -> dict[str, Any]:
    return {
        "interleaved": True,
        "mrope_section": list(_MROPE_SECTION),
        "rope_type": "default",
        "type": "default",
    }


def _decoder() -> dict[str, Any]:
    """Keys that the three decoders share."""
    return {
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "max_position_embeddings": _CONTEXT,
        "initializer_range": 0.02,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "tie_word_embeddings": False,
        "attention_bias": False,
        "attention_dropout": 0,
        "sliding_window": None,
        "use_sliding_window": False,
        "use_cache": True,
    }
