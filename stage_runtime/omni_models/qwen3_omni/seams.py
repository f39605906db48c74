"""What thinker and talker take from SGLang beyond the bridge; checked before they are imported."""

from __future__ import annotations

from omni_runtime.sglang_bridge.contract import Seam

_FORWARD = "sglang.srt.model_executor.forward_batch_info"
_QWEN3 = "sglang.srt.models.qwen3_moe"
_PARSERS = "sglang.srt.configs.model_config_parser_registry"

_BOTH = (
    Seam(_PARSERS, "ModelConfigParserBase.parse", ("model", "trust_remote_code")),
    Seam("sglang.srt.layers.moe.fused_moe_triton", "FusedMoE.make_expert_params_mapping"),
    Seam("sglang.srt.model_loader.weight_utils", "default_weight_loader"),
    Seam("sglang.srt.layers.quantization.base_config", "QuantizationConfig"),
    Seam("sglang.srt.layers.vocab_parallel_embedding", "ParallelLMHead"),
    Seam(
        _FORWARD,
        "ForwardBatch",
        fields=("rids", "seq_lens_cpu", "forward_mode", "extend_prefix_lens_cpu"),
    ),
    Seam(_FORWARD, "ForwardBatch", fields=("mrope_positions",)),
)
THINKER_SEAMS = (
    *_BOTH,
    Seam(
        "sglang.srt.managers.mm_utils",
        "general_mm_embed_routine",
        ("language_model", "multimodal_model", "use_deepstack"),
    ),
    Seam("sglang.srt.models.qwen3_vl_moe", "Qwen3MoeLLMModel", ("config", "quant_config")),
)
TALKER_SEAMS = (
    *_BOTH,
    Seam("sglang.srt.models.qwen2_moe", "Qwen2MoeSparseMoeBlock", ("layer_id", "reduce_results")),
    Seam("sglang.srt.models.qwen2_moe", "Qwen2MoeSparseMoeBlock._forward_shared_experts"),
    Seam("sglang.srt.models.qwen2_moe", "Qwen2MoeSparseMoeBlock._forward_router_experts"),
    Seam(_QWEN3, "Qwen3MoeDecoderLayer", ("config", "layer_id")),
    Seam(_QWEN3, "Qwen3MoeModel", ("config", "decoder_layer_type")),
)
