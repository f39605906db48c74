"""Which parameter each published tensor goes to, at full size, without a byte of weights.

Run as a module it answers for the engine stages, whose models need SGLang set up in the process:
a JSON list of what does not fit.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from omni_models.qwen3_omni.layout import Shape, published_layout
from tests.support.checkpoints import published_config, tiny_checkpoint

GIBIBYTE = 1 << 30
CARD_BYTES = 80 * GIBIBYTE
BF16_BYTES = 2

PREFIXES: Mapping[str, tuple[str, ...]] = {
    "image_encoder": ("thinker.visual.",),
    "audio_encoder": ("thinker.audio_tower.",),
    "thinker": ("thinker.model.", "thinker.lm_head."),
    "talker_ar": ("talker.",),
    "code2wav": ("code2wav.",),
}
"""Where each stage's tensors are in the checkpoint."""


def tensors_of(stage: str) -> dict[str, Shape]:
    """Return the published tensors of a stage by their full names."""
    layout = published_layout(published_config())
    return {name: shape for name, shape in layout.items() if name.startswith(PREFIXES[stage])}


def weight_bytes(stage: str) -> int:
    """Return what a stage's weights take in bfloat16."""
    return BF16_BYTES * sum(math.prod(shape) for shape in tensors_of(stage).values())


def token_bytes(text: Mapping[str, Any]) -> int:
    """Return what one token takes in the KV cache, in bfloat16."""
    heads, dim = text["num_key_value_heads"], text["head_dim"]
    return int(text["num_hidden_layers"] * 2 * heads * dim * BF16_BYTES)


def misfits(
    tensors: Mapping[str, Shape],
    parameters: Mapping[str, Shape],
    expert_count: int,
    name_of: Callable[[str], str | None],
) -> Iterator[str]:
    """Yield what keeps tensors and parameters of an engine stage from matching exactly."""
    from omni_models.qwen3_omni.moe_weights import expert_mapping, target_of

    experts = expert_mapping(expert_count)
    places: Counter[str] = Counter()
    filled: Counter[str] = Counter()
    for name, shape in tensors.items():
        # As the stages' own loaders: only the layers of the language model are fused.
        own = name_of(name)
        if own is None:
            yield f"{name} is not taken by its stage"
            continue
        fused = own.startswith("model.layers.")
        target, part = target_of(own, experts) if fused else (own, {})
        if target not in parameters:
            yield f"{name} goes to no parameter"
            continue
        places[f"{target} {part}"] += 1
        filled[target] += math.prod(shape)
        wanted = parameters[target]
        same = shape[-1] == wanted[-1] if part else shape == wanted
        if not same:
            yield f"{name} of shape {shape} goes to {target} of shape {wanted}"
    yield from (f"{place} is filled {count} times" for place, count in places.items() if count > 1)
    for target, shape in parameters.items():
        if filled[target] != math.prod(shape):
            yield f"{target} takes {math.prod(shape)} numbers and gets {filled[target]}"


def engine_misfits() -> list[str]:
    """Return the misfits of thinker and talker."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import AutoConfig

    from omni_models.qwen3_omni.factories import create_thinker

    # Any running engine: it sets up what SGLang's layers look for when they are built.
    create_thinker(str(tiny_checkpoint()), server_args_overrides={"dtype": "float32"})
    from omni_models.qwen3_omni.talker import model as talker
    from omni_models.qwen3_omni.thinker import model as thinker

    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(published_config()))
        for stage, module, part in (
            ("thinker", thinker, "thinker_config"),
            ("talker_ar", talker, "talker_config"),
        ):
            whole = AutoConfig.from_pretrained(folder)
            config = getattr(whole, part).text_config
            config.omni, config.dtype = whole, torch.bfloat16
            config.rope_parameters["mrope_interleaved"] = True
            with torch.device("meta"):
                model = module.EntryClass(config)
            shapes = {name: tuple(value.shape) for name, value in model.named_parameters()}
            found += misfits(tensors_of(stage), shapes, config.num_experts, module._name_of)
    return found


if __name__ == "__main__":
    print(json.dumps(engine_misfits()))
    sys.stdout.flush()
    # The engine's threads have nothing more to do.
    os._exit(0)
