"""Budgets that contradict each other are refused, not added up wrongly."""

from __future__ import annotations

import pytest

from omni_config.errors import PlanError
from omni_config.planning.devices import Device, DeviceTable
from omni_config.planning.plan import prepare_pipeline_runtime
from omni_config.schema import PipelineConfig
from tests.support.config import load_case
from tests.support.pipelines import chain, engine, stage

GIB = 1 << 30
EIGHTY_GIB = DeviceTable({0: Device("GPU-0", memory_bytes=80 * GIB)})
NOT_REQUIRED = {"require_memory_fraction_for_colocation": False}


def _refusal(config: PipelineConfig, devices: DeviceTable | None = None) -> tuple[str, str]:
    with pytest.raises(PlanError) as refusal:
        prepare_pipeline_runtime(config, devices=devices)
    (problem,) = refusal.value.problems
    return problem.path, problem.message


def test_a_tensor_parallel_thinker_may_not_share_the_talkers_card_without_a_budget() -> None:
    config = load_case(
        {
            "yaml": "config_cls: Qwen3OmniSpeechPipelineConfig\nmodel_path: m\n"
            "stages:\n  thinker: {tp_size: 2, gpu: [0, 1]}\n"
        }
    )
    path, message = _refusal(config)
    assert path == "stages.thinker.gpu_memory_fraction"
    assert "GPU 1 is shared by the engines thinker, talker_ar" in message


@pytest.mark.parametrize(
    "bound",
    [
        {"gpu_memory_fraction": 0.3},
        {"total_reserve_bytes": GIB},
        {"engine": {"kv_cache_bytes": GIB}},
        {"engine": {"mem_fraction_static": 0.3}},
    ],
    ids=str,
)
def test_two_engines_share_a_card_when_both_are_bounded(bound: dict[str, object]) -> None:
    config = chain(engine("a", gpu=0, **bound), engine("b", gpu=0, **bound), placement=NOT_REQUIRED)
    prepare_pipeline_runtime(config)


def test_engines_of_one_process_are_constructed_in_turn_and_need_no_bound() -> None:
    prepare_pipeline_runtime(
        chain(engine("a", gpu=0, process="all"), engine("b", gpu=0, process="all"))
    )


def test_static_memory_above_the_stages_own_fraction_is_refused() -> None:
    config = chain(
        engine("llm", gpu=0, gpu_memory_fraction=0.4, engine={"mem_fraction_static": 0.7})
    )
    path, message = _refusal(config)
    assert path == "stages.llm.engine.mem_fraction_static"
    assert "mem_fraction_static=0.700" in message
    assert "gpu_memory_fraction=0.400" in message


def test_kv_bytes_outside_any_footprint_add_up_with_the_fractions() -> None:
    config = chain(
        stage("vocoder", gpu=0, gpu_memory_fraction=0.9),
        engine("llm", gpu=0, engine={"kv_cache_bytes": 20 * GIB}),
        placement=NOT_REQUIRED,
    )
    path, message = _refusal(config, EIGHTY_GIB)
    assert path == "stages.llm"
    assert "fraction 0.900 of 80.00GiB" in message
    assert "engine.kv_cache_bytes 20.00GiB = 92.00GiB" in message


def test_kv_bytes_inside_a_footprint_are_not_counted_twice() -> None:
    config = chain(
        stage("vocoder", gpu=0, gpu_memory_fraction=0.5),
        engine("llm", gpu=0, total_reserve_bytes=40 * GIB, engine={"kv_cache_bytes": 30 * GIB}),
    )
    prepare_pipeline_runtime(config, devices=EIGHTY_GIB)


def test_a_card_of_unknown_size_is_not_checked() -> None:
    config = chain(engine("llm", gpu=0, engine={"kv_cache_bytes": 900 * GIB}))
    prepare_pipeline_runtime(config, devices=DeviceTable({0: Device("GPU-0")}))


def test_static_memory_that_no_rule_counts_is_told() -> None:
    config = chain(
        stage("vocoder", gpu=0, gpu_memory_fraction=0.3),
        engine("llm", gpu=0, engine={"mem_fraction_static": 0.9}),
        placement=NOT_REQUIRED,
    )
    (warning,) = prepare_pipeline_runtime(config).warnings
    assert "engine.mem_fraction_static of llm" in warning
    assert "sum to 1.200" in warning
