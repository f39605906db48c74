"""What SGLang is started with: the bridge's needs, then the stage's, then what was written."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from omni_config.vocabulary import server_args_fields
from omni_runtime.sglang_bridge import arguments
from omni_runtime.sglang_bridge.arguments import (
    RENAMED,
    loses_precision,
    processor_shares,
    server_arguments,
)


@dataclass
class Plan:
    model_path: str = "m"
    config_parser: str = "p"
    gpu_id: int | None = 0
    checkpoint_dtype: str = "bfloat16"
    overrides: dict[str, object] = field(default_factory=dict)
    defaults: dict[str, object] = field(default_factory=dict)
    tp_size: int = 1


def test_what_is_written_wins_and_arrives_unchanged() -> None:
    made = server_arguments(
        Plan(
            defaults={"chunked_prefill_size": -1},
            overrides={"chunked_prefill_size": 64, "log_level": "info", "custom_key": None},
        )
    )
    assert made["chunked_prefill_size"] == 64
    assert made["log_level"] == "info"
    assert made["custom_key"] is None


def test_a_gpu_keeps_sglangs_own_choices() -> None:
    made = server_arguments(Plan(gpu_id=3))
    assert made["base_gpu_id"] == 3
    assert not made.keys() & (arguments.CPU.keys() - {"base_gpu_id"})


def test_a_cpu_gets_what_runs_there() -> None:
    made = server_arguments(Plan(gpu_id=None, overrides={"max_total_tokens": 512}))
    assert made["device"] == "cpu"
    assert made["attention_backend"] == "torch_native"
    assert made["max_total_tokens"] == 512


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_cpu_computes_as_the_checkpoint_was_saved(dtype: str) -> None:
    plan = Plan(gpu_id=None, checkpoint_dtype=dtype)
    assert server_arguments(plan)["dtype"] == dtype
    assert not loses_precision(plan)
    plan.overrides["dtype"] = "float16"
    assert server_arguments(plan)["dtype"] == "float16"


@pytest.mark.parametrize(
    ("dtype", "overrides", "loses"),
    [
        ("float32", {}, True),
        ("float32", {"dtype": "float32"}, False),
        ("float32", {"dtype": "bfloat16"}, False),
        ("bfloat16", {}, False),
    ],
)
def test_a_gpu_that_would_compute_in_fewer_bits_unasked_is_noticed(
    dtype: str, overrides: dict[str, object], loses: bool
) -> None:
    assert loses_precision(Plan(checkpoint_dtype=dtype, overrides=overrides)) is loses


def test_a_renamed_setting_takes_the_pinned_name() -> None:
    made = server_arguments(Plan(overrides={"cuda_graph_max_bs": 8}))
    assert made["cuda_graph_max_bs_decode"] == 8
    assert "cuda_graph_max_bs" not in made


def test_every_name_is_one_of_the_pinned_release() -> None:
    names = {*arguments.HOSTED, *arguments.CPU, *RENAMED.values(), "model_config_parser", "tp_size"}
    assert names <= server_args_fields().keys()


@pytest.mark.parametrize(
    ("processors", "ranks", "shares"),
    [
        ([0, 1, 2, 3], 2, "0,1|2,3"),
        ([4, 6, 9], 2, "4|6"),
        ([3], 2, "3|3"),
        ([0, 1, 2], 3, "0|1|2"),
    ],
)
def test_ranks_on_a_cpu_share_its_processors(
    processors: list[int], ranks: int, shares: str
) -> None:
    assert processor_shares(processors, ranks) == shares
