"""Arguments of SGLang's `ServerArgs` for one stage. Pure: needs neither torch nor sglang.

Three layers, lowest first: what the bridge needs to host a scheduler, what the stage needs, and
what was written under `engine.*`, which reaches SGLang unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

HOSTED: Mapping[str, object] = {
    # Texts are the decode stage's business; stop texts are checked with a tokenizer of the bridge.
    "skip_tokenizer_init": True,
    "log_level": "warning",
    "stream_interval": 1,
}

CPU: Mapping[str, object] = {
    "device": "cpu",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "disable_cuda_graph": True,
    "disable_overlap_schedule": True,
    "mem_fraction_static": 0.1,
    "max_total_tokens": 65536,
}
"""What a plain CPU needs. Its pool is small by default: main memory belongs to others too."""

RENAMED = {"cuda_graph_max_bs": "cuda_graph_max_bs_decode"}
"""Settings whose name in the pinned SGLang differs from the one in the configuration."""


class Plan(Protocol):
    """What is read of `engine.EnginePlan`."""

    @property
    def model_path(self) -> str: ...
    @property
    def config_parser(self) -> str: ...
    @property
    def gpu_id(self) -> int | None: ...
    @property
    def checkpoint_dtype(self) -> str: ...
    @property
    def overrides(self) -> Mapping[str, object]: ...
    @property
    def defaults(self) -> Mapping[str, object]: ...
    @property
    def tp_size(self) -> int: ...


def server_arguments(plan: Plan) -> dict[str, Any]:
    """Return the keyword arguments of `ServerArgs`."""
    arguments: dict[str, object] = {
        "model_path": plan.model_path,
        "model_config_parser": plan.config_parser,
        **HOSTED,
        **_device_arguments(plan),
        **plan.defaults,
        **({"tp_size": plan.tp_size} if plan.tp_size > 1 else {}),
    }
    for key, value in plan.overrides.items():
        arguments[RENAMED.get(key, key)] = value
    return arguments


def processor_shares(processors: Sequence[int], ranks: int) -> str:
    """Return which processors each rank computes on, as SGLang wants to be told.

    Where there are fewer processors than ranks, some are shared.
    """
    size = max(1, len(processors) // ranks)
    shares = [
        [processors[(rank * size + i) % len(processors)] for i in range(size)]
        for rank in range(ranks)
    ]
    return "|".join(",".join(map(str, share)) for share in shares)


def loses_precision(plan: Plan) -> bool:
    """Return whether SGLang will compute in fewer bits than the checkpoint has, unasked."""
    asked = plan.overrides.get("dtype", plan.defaults.get("dtype"))
    return plan.gpu_id is not None and plan.checkpoint_dtype == "float32" and asked is None


def _device_arguments(plan: Plan) -> Mapping[str, object]:
    if plan.gpu_id is not None:
        return {"base_gpu_id": plan.gpu_id}
    # SGLang's own default makes float16 of float32, which no CPU computes faster.
    return {**CPU, "dtype": plan.checkpoint_dtype}
