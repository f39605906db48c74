"""Names and shapes of every tensor in a published Qwen3-Omni checkpoint, from its `config.json`.

Pure arithmetic: no tensor library is needed to know what a checkpoint must hold. The tiny
checkpoint is written by this table, and the stages are checked against it at full size, where the
weights themselves would be 66 GB.

Names are those of the published index: experts are separate tensors. transformers 5 writes them
fused and spells some configuration keys differently; `experts_of` reads both spellings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Config = Mapping[str, Any]
Shape = tuple[int, ...]
Tensors = Iterator[tuple[str, Shape]]

CONV_KERNEL = 7
"""Width of every convolution of the vocoder but the pointwise ones."""


def published_layout(config: Config) -> dict[str, Shape]:
    """Return the shape of every tensor by name, for the whole checkpoint.

    Args:
        config: the parsed `config.json`, in the published spelling or transformers 5's.
    """
    thinker, talker = config["thinker_config"], config["talker_config"]
    parts: Iterable[tuple[str, Tensors]] = (
        ("thinker.audio_tower.", _audio_tower(thinker["audio_config"])),
        ("thinker.visual.", _visual(thinker["vision_config"])),
        ("thinker.", _language_model(thinker["text_config"])),
        ("talker.", _talker(talker)),
        ("code2wav.", _code2wav(config["code2wav_config"])),
    )
    return {prefix + name: shape for prefix, tensors in parts for name, shape in tensors}


def experts_of(text: Config) -> int:
    """Return the number of routed experts of a text configuration."""
    experts = text.get("num_experts")
    return int(text["num_local_experts"] if experts is None else experts)


def _language_model(text: Config) -> Tensors:
    hidden, vocabulary = text["hidden_size"], text["vocab_size"]
    yield "lm_head.weight", (vocabulary, hidden)
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    yield from _decoder("model.", text, _experts(text))


def _talker(talker: Config) -> Tensors:
    text, predictor = talker["text_config"], talker["code_predictor_config"]
    hidden = text["hidden_size"]
    yield "codec_head.weight", (text["vocab_size"], hidden)
    yield "model.codec_embedding.weight", (text["vocab_size"], hidden)
    experts = (*_experts(text), *_shared_expert(text))
    yield from _decoder("model.", text, experts)
    for projection in ("text_projection", "hidden_projection"):
        wide = talker["thinker_hidden_size"]
        yield from _linear(f"{projection}.linear_fc1", wide, wide)
        yield from _linear(f"{projection}.linear_fc2", wide, hidden)
    width, codes = predictor["hidden_size"], predictor["vocab_size"]
    for group in range(talker["num_code_groups"] - 1):
        yield f"code_predictor.model.codec_embedding.{group}.weight", (codes, width)
        yield f"code_predictor.lm_head.{group}.weight", (codes, width)
    mlp = tuple(_gated_mlp("", width, predictor["intermediate_size"]))
    yield from _decoder("code_predictor.model.", predictor, mlp)


def _decoder(prefix: str, text: Config, mlp: Iterable[tuple[str, Shape]]) -> Tensors:
    """Layers with normalised queries and keys, `mlp` in each, and the final norm."""
    hidden, head = text["hidden_size"], _head_dim(text)
    mlp = tuple(mlp)
    for layer in range(text["num_hidden_layers"]):
        at = f"{prefix}layers.{layer}."
        yield from _prefixed(f"{at}self_attn.", _attention(text))
        yield f"{at}self_attn.q_norm.weight", (head,)
        yield f"{at}self_attn.k_norm.weight", (head,)
        yield f"{at}input_layernorm.weight", (hidden,)
        yield f"{at}post_attention_layernorm.weight", (hidden,)
        yield from _prefixed(f"{at}mlp.", mlp)
    yield f"{prefix}norm.weight", (hidden,)


def _attention(text: Config) -> Tensors:
    hidden, head = text["hidden_size"], _head_dim(text)
    queries = text["num_attention_heads"] * head
    keys = text["num_key_value_heads"] * head
    yield "q_proj.weight", (queries, hidden)
    yield "k_proj.weight", (keys, hidden)
    yield "v_proj.weight", (keys, hidden)
    yield "o_proj.weight", (hidden, queries)


def _experts(text: Config) -> Tensors:
    hidden, experts = text["hidden_size"], experts_of(text)
    yield "gate.weight", (experts, hidden)
    for expert in range(experts):
        yield from _gated_mlp(f"experts.{expert}.", hidden, text["moe_intermediate_size"])


def _shared_expert(text: Config) -> Tensors:
    hidden = text["hidden_size"]
    yield from _gated_mlp("shared_expert.", hidden, text["shared_expert_intermediate_size"])
    yield "shared_expert_gate.weight", (1, hidden)


def _gated_mlp(prefix: str, hidden: int, middle: int) -> Tensors:
    yield f"{prefix}gate_proj.weight", (middle, hidden)
    yield f"{prefix}up_proj.weight", (middle, hidden)
    yield f"{prefix}down_proj.weight", (hidden, middle)


def _audio_tower(audio: Config) -> Tensors:
    width, channels = audio["d_model"], audio["downsample_hidden_size"]
    for number in (1, 2, 3):
        inputs = 1 if number == 1 else channels
        yield from _convolution(f"conv2d{number}", (channels, inputs, 3, 3), channels)
    bins = audio["num_mel_bins"]
    for _ in range(3):
        bins = (bins + 1) // 2
    yield "conv_out.weight", (width, channels * bins)
    for layer in range(audio["encoder_layers"]):
        at = f"layers.{layer}."
        for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from _linear(f"{at}self_attn.{projection}", width, width)
        yield from _norm(f"{at}self_attn_layer_norm", width)
        yield from _linear(f"{at}fc1", width, audio["encoder_ffn_dim"])
        yield from _linear(f"{at}fc2", audio["encoder_ffn_dim"], width)
        yield from _norm(f"{at}final_layer_norm", width)
    yield from _norm("ln_post", width)
    yield from _linear("proj1", width, width)
    yield from _linear("proj2", width, audio["output_dim"])


def _visual(vision: Config) -> Tensors:
    width, middle = vision["hidden_size"], vision["intermediate_size"]
    patch = vision["patch_size"]
    volume = (vision["in_channels"], vision["temporal_patch_size"], patch, patch)
    yield from _convolution("patch_embed.proj", (width, *volume), width)
    yield "pos_embed.weight", (vision["num_position_embeddings"], width)
    for block in range(vision["depth"]):
        at = f"blocks.{block}."
        yield from _norm(f"{at}norm1", width)
        yield from _norm(f"{at}norm2", width)
        yield from _linear(f"{at}attn.qkv", width, 3 * width)
        yield from _linear(f"{at}attn.proj", width, width)
        yield from _linear(f"{at}mlp.linear_fc1", width, middle)
        yield from _linear(f"{at}mlp.linear_fc2", middle, width)
    merged = width * vision["spatial_merge_size"] ** 2
    yield from _merger("merger.", width, merged, vision["out_hidden_size"])
    for level in range(len(vision["deepstack_visual_indexes"])):
        # Those that feed the deepstack normalise after merging, the main one before.
        yield from _merger(f"merger_list.{level}.", merged, merged, vision["out_hidden_size"])


def _merger(prefix: str, normalised: int, merged: int, outputs: int) -> Tensors:
    yield from _norm(f"{prefix}ln_q", normalised)
    yield from _linear(f"{prefix}mlp.0", merged, merged)
    yield from _linear(f"{prefix}mlp.2", merged, outputs)


def _code2wav(codec: Config) -> Tensors:
    hidden = codec["hidden_size"]
    yield "code_embedding.weight", (codec["codebook_size"] * codec["num_quantizers"], hidden)
    yield from _prefixed("pre_transformer.", _pre_transformer(codec))
    for stage, ratio in enumerate(codec["upsampling_ratios"]):
        at = f"upsample.{stage}."
        yield from _convolution(f"{at}0.conv", (hidden, hidden, ratio), hidden)
        yield from _convolution(f"{at}1.dwconv.conv", (hidden, 1, CONV_KERNEL), hidden)
        yield f"{at}1.gamma", (hidden,)
        yield from _norm(f"{at}1.norm", hidden)
        yield from _linear(f"{at}1.pwconv1", hidden, 4 * hidden)
        yield from _linear(f"{at}1.pwconv2", 4 * hidden, hidden)
    yield from _prefixed("decoder.", _vocoder(codec))


def _pre_transformer(codec: Config) -> Tensors:
    hidden = codec["hidden_size"]
    for layer in range(codec["num_hidden_layers"]):
        at = f"layers.{layer}."
        yield from _prefixed(f"{at}self_attn.", _attention(codec))
        yield from _gated_mlp(f"{at}mlp.", hidden, codec["intermediate_size"])
        yield f"{at}input_layernorm.weight", (hidden,)
        yield f"{at}post_attention_layernorm.weight", (hidden,)
        yield f"{at}self_attn_layer_scale.scale", (hidden,)
        yield f"{at}mlp_layer_scale.scale", (hidden,)
    yield "norm.weight", (hidden,)


def _vocoder(codec: Config) -> Tensors:
    channels = codec["decoder_dim"]
    yield from _convolution("0.conv", (channels, codec["hidden_size"], CONV_KERNEL), channels)
    for block, rate in enumerate(codec["upsample_rates"], start=1):
        at, halved = f"{block}.block.", channels // 2
        yield from _snake(f"{at}0", channels)
        yield from _convolution(f"{at}1.conv", (channels, halved, 2 * rate), halved)
        for unit in (2, 3, 4):
            for number, kernel in ((1, CONV_KERNEL), (2, 1)):
                yield from _snake(f"{at}{unit}.act{number}", halved)
                name = f"{at}{unit}.conv{number}.conv"
                yield from _convolution(name, (halved, halved, kernel), halved)
        channels = halved
    last = len(codec["upsample_rates"]) + 1
    yield from _snake(str(last), channels)
    yield from _convolution(f"{last + 1}.conv", (1, channels, CONV_KERNEL), 1)


def _linear(name: str, inputs: int, outputs: int) -> Tensors:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def _norm(name: str, width: int) -> Tensors:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def _convolution(name: str, shape: Shape, outputs: int) -> Tensors:
    yield f"{name}.weight", shape
    yield f"{name}.bias", (outputs,)


def _snake(name: str, channels: int) -> Tensors:
    yield f"{name}.alpha", (channels,)
    yield f"{name}.beta", (channels,)


def _prefixed(prefix: str, tensors: Iterable[tuple[str, Shape]]) -> Tensors:
    for name, shape in tensors:
        yield prefix + name, shape


def _head_dim(text: Config) -> int:
    return int(text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"])
