"""A refused plan points at the file and line of the value that each problem is about."""

from __future__ import annotations

import pytest

from omni_config.errors import PlanError, Problem
from omni_config.planning.resolved_plan import plan_resolution
from tests.support.config import resolve_case

YAML = """config_cls: Qwen3TTSPipelineConfig
model_path: org/m
stages:
  tts_engine:
    process: engine
    gpu_memory_fraction: 0.8
  vocoder:
    gpu_memory_fraction: 0.3
"""


def _problem(yaml: str, *argv: str) -> Problem:
    with pytest.raises(PlanError) as refusal:
        plan_resolution(resolve_case({"yaml": yaml, "argv": argv}))
    (problem,) = refusal.value.problems
    return problem


def test_a_sum_over_the_limit_points_at_the_largest_fraction() -> None:
    problem = _problem(YAML)
    assert problem.path == "stages.tts_engine.gpu_memory_fraction"
    assert str(problem).startswith("case.yaml:6: GPU 0 total_gpu_memory_fraction=1.100 exceeds")


def test_a_flag_that_wins_over_the_file_is_not_blamed_on_the_file() -> None:
    problem = _problem(YAML, "--tts_engine.gpu_memory_fraction", "0.9")
    assert problem.where == ""


def test_a_missing_value_points_at_what_was_written_nearest_to_it() -> None:
    problem = _problem(YAML.replace("gpu_memory_fraction: 0.3", "gpu: 0"))
    assert problem.path == "stages.vocoder.gpu_memory_fraction"
    assert problem.where == "case.yaml:8"


def test_a_top_level_setting_points_at_its_line() -> None:
    problem = _problem(
        "config_cls: Qwen3TTSPipelineConfig\nmodel_path: org/m\nweight_share: 'on'\n"
    )
    assert problem.where == "case.yaml:3"


def test_a_plan_that_holds_is_returned() -> None:
    runtime = plan_resolution(resolve_case({"yaml": YAML.replace("0.8", "0.6")}))
    assert [group.name for group in runtime.process_plan.groups] == ["pipeline", "engine"]
