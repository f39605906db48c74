"""Loading Qwen3 MoE weights of the published layout into SGLang's fused parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from sglang.srt.layers.moe.fused_moe_triton import FusedMoE
from sglang.srt.model_loader.weight_utils import default_weight_loader
from torch import nn

from omni_models.qwen3_omni.checkpoint_folder import IncompleteCheckpoint

PACKED_MODULES: Mapping[str, list[str]] = {
    "qkv_proj": ["q_proj", "k_proj", "v_proj"],
    "gate_up_proj": ["gate_proj", "up_proj"],
}
_STACKED = (
    ("qkv_proj", "q_proj", "q"),
    ("qkv_proj", "k_proj", "k"),
    ("qkv_proj", "v_proj", "v"),
    ("gate_up_proj", "gate_proj", 0),
    ("gate_up_proj", "up_proj", 1),
)


def load(
    model: nn.Module,
    weights: Iterable[tuple[str, torch.Tensor]],
    name_of: Callable[[str], str | None],
    fused_prefix: str = "model.layers.",
) -> set[str]:
    """Load weights and return the names of the parameters they went to.

    Args:
        name_of: the model's own name of a tensor, None where it belongs to another stage.
        fused_prefix: layers whose projections and experts SGLang fuses.

    Raises:
        IncompleteCheckpoint: a tensor of this stage has no parameter, or a parameter no tensor.
    """
    experts = expert_mapping(model.config.num_experts)
    parameters, loaded = dict(model.named_parameters()), set()
    for checkpoint_name, tensor in weights:
        name = name_of(checkpoint_name)
        if name is None:
            continue
        fused = name.startswith(fused_prefix)
        target, arguments = target_of(name, experts) if fused else (name, {})
        parameter = parameters.get(target)
        if parameter is None:
            raise IncompleteCheckpoint(f"the checkpoint's {checkpoint_name} fits no parameter")
        _put(parameter, tensor, target, arguments)
        loaded.add(target)
    missing = sorted(parameters.keys() - loaded)
    if missing:
        raise IncompleteCheckpoint(
            f"the checkpoint lacks {len(missing)} weights, such as {', '.join(missing[:3])}"
        )
    return loaded


def expert_mapping(count: int) -> list[tuple[str, str, int, str]]:
    """Return, for each tensor of each expert: parameter, tensor, expert, part of the parameter."""
    mapping: list[tuple[str, str, int, str]] = FusedMoE.make_expert_params_mapping(
        ckpt_gate_proj_name="gate_proj",
        ckpt_down_proj_name="down_proj",
        ckpt_up_proj_name="up_proj",
        num_experts=count,
    )
    return mapping


def target_of(
    name: str, experts: Iterable[tuple[str, str, int, str]]
) -> tuple[str, dict[str, Any]]:
    """Return the fused parameter a tensor is part of, and which part it is."""
    if ".experts." in name:
        for parameter, weight, expert_id, shard_id in experts:
            if weight in name:
                return name.replace(weight, parameter), {
                    "shard_id": shard_id,
                    "expert_id": expert_id,
                }
    for parameter, weight, shard in _STACKED:
        if f".{weight}." in name:
            return name.replace(weight, parameter), {"shard": shard}
    return name, {}


def _put(
    parameter: nn.Parameter, tensor: torch.Tensor, name: str, arguments: Mapping[str, Any]
) -> None:
    loader = getattr(parameter, "weight_loader", default_weight_loader)
    if "expert_id" in arguments:
        loader(parameter, tensor, name, **arguments)
    elif "shard" in arguments:
        loader(parameter, tensor, arguments["shard"])
    else:
        loader(parameter, tensor)
