"""Stages on GPUs: ids that exist, sums that hold, budgets that are declared."""

from __future__ import annotations

from typing import Any

import pytest

from omni_config.errors import PlanError, Problem
from omni_config.planning.devices import DeviceTable
from omni_config.planning.placement import PlacementPlan
from omni_config.planning.plan import prepare_pipeline_runtime
from omni_config.schema import PipelineConfig
from tests.support.pipelines import chain, engine, replicas, stage


def _problems(config: PipelineConfig, **known: Any) -> list[tuple[str, str]]:
    with pytest.raises(PlanError) as refusal:
        prepare_pipeline_runtime(config, **known)
    return [(problem.path, problem.message) for problem in refusal.value.problems]


def test_a_gpu_is_counted_against_the_launchers_visible_devices() -> None:
    config = chain(stage("a", gpu=1))
    said = _problems(config, environ={"CUDA_VISIBLE_DEVICES": "5"})
    assert said == [
        ("stages.a.gpu", "Stage 'a': GPU id 1 out of range; only 1 visible device(s)"),
    ]


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_a_launcher_that_sees_no_gpu_checks_no_id(hidden: str) -> None:
    prepare_pipeline_runtime(chain(stage("a", gpu=1)), environ={"CUDA_VISIBLE_DEVICES": hidden})


def test_a_copy_out_of_range_points_at_replica_devices() -> None:
    config = chain(stage("a", gpu=0), processes=replicas(a=[0, 4]))
    said = _problems(config, devices=DeviceTable(visible_count=2))
    assert said == [
        (
            "processes.a.replica_devices",
            "Stage 'a@r1': GPU id 4 out of range; only 2 visible device(s)",
        )
    ]


def test_all_problems_are_told_at_once_each_with_its_path() -> None:
    config = chain(
        stage("a", gpu=0, gpu_memory_fraction=0.7),
        stage("b", gpu=0, gpu_memory_fraction=0.6),
        stage("c", gpu=1),
        stage("d", gpu=1),
        stage("e", process="mixed", gpu=2),
        stage("f", process="mixed", gpu=3),
    )
    said = _problems(config, devices=DeviceTable(visible_count=3))
    assert [path for path, _ in said] == [
        "stages.f.gpu",
        "stages.a.gpu_memory_fraction",
        "stages.c.gpu_memory_fraction",
        "stages.f.gpu",
    ]
    assert "GPU 0 total_gpu_memory_fraction=1.300 exceeds placement limit 1.000" in said[1][1]
    assert said[1][1].endswith("a 0.7, b 0.6")


def test_opting_out_of_budgets_does_not_cover_sharing_by_replicas() -> None:
    config = chain(
        stage("a", gpu=0),
        stage("b", gpu=1),
        placement={"require_memory_fraction_for_colocation": False},
        processes=replicas(b=[0, 1]),
    )
    ((path, message),) = _problems(config)
    assert path == "stages.a.gpu_memory_fraction"
    assert "GPU 0 has replica-induced GPU sharing" in message
    assert message.endswith("a, b (instance b@r0)")


def test_the_models_own_policy_sees_the_plan_and_no_setting_removes_it() -> None:
    class Picky(PipelineConfig):
        def placement_problems(self, placement: PlacementPlan) -> list[Problem]:
            (instance,) = placement.by_stage["a"]
            return [Problem(instance.device_path, f"not on {instance.gpu_ids}")]

    config = chain(
        stage("a", gpu=3),
        pipeline=Picky,
        placement={"require_memory_fraction_for_colocation": False},
    )
    assert _problems(config) == [("stages.a.gpu", "not on (3,)")]


def test_a_tensor_parallel_stage_counts_fully_on_each_of_its_gpus() -> None:
    config = chain(engine("llm", gpu=(0, 1), tp_size=2, gpu_memory_fraction=0.4))
    gpus = prepare_pipeline_runtime(config).placement_plan.gpus
    assert [(it.stage_names, it.total_gpu_memory_fraction) for it in gpus.values()] == [
        (("llm",), 0.4),
        (("llm",), 0.4),
    ]
