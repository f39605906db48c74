"""The plan as a whole: its shape, its completeness, and that making it changes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omni_config.errors import PlanError
from omni_config.planning.plan import prepare_pipeline_runtime
from tests.support.config import resolve_case
from tests.support.pipelines import chain, engine, replicas, stage

SPEECH = {"yaml": "config_cls: Qwen3OmniSpeechPipelineConfig\nmodel_path: org/m\n"}

WATCHED_PLANNING = """
import sys
from omni_config.planning.plan import prepare_pipeline_runtime
from omni_models.catalog import registry

WATCHED = ("os.mkdir", "os.rename", "os.remove", "socket.", "subprocess.", "os.exec", "os.fork",
           "os.posix_spawn", "tempfile.")

def refuse(event, arguments):
    writes = event == "open" and isinstance(arguments[1], str) and arguments[1].strip("rbt")
    if writes or event.startswith(WATCHED):
        raise SystemExit(f"planning did {event} {arguments}")

config = registry().by_name("Qwen3OmniSpeechPipelineConfig")(
    model_path="org/m", mps="auto", endpoints={"base_path": sys.argv[1]}
)
sys.addaudithook(refuse)
print(len(prepare_pipeline_runtime(config, environ={}).to_json()["groups"]))
print([name for name in ("torch", "transformers", "sglang") if name in sys.modules])
"""


def test_planning_starts_binds_and_writes_nothing_and_imports_nothing_heavy(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-B", "-c", WATCHED_PLANNING, str(tmp_path / "base")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n[]\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_refused_plan_leaves_no_directory_behind(tmp_path: Path) -> None:
    config = chain(stage("a"), endpoints={"base_path": str(tmp_path / ("b" * 90))})
    with pytest.raises(PlanError):
        prepare_pipeline_runtime(config)
    assert list(tmp_path.iterdir()) == []


def test_the_json_of_a_plan_has_the_names_of_the_api() -> None:
    resolution = resolve_case(SPEECH)
    plan: dict[str, Any] = prepare_pipeline_runtime(resolution.config).to_json()
    assert plan["groups"][1] == {
        "name": "image_encoder",
        "gpu_id": 0,
        "stage_names": ["image_encoder"],
    }
    assert plan["gpus"]["1"] == {
        "stage_names": ["talker_ar"],
        "total_gpu_memory_fraction": 0.0,
        "missing_fraction_stage_names": ["talker_ar"],
        "kv_cache_bytes": 0,
        "total_reserve_bytes": 0,
    }
    assert (plan["entry"], plan["terminals"]) == ("preprocessing", ["decode", "code2wav"])
    assert plan["mps"]["decision"] == plan["weight_share"]["decision"] == "off"
    assert plan["mps"]["reason"] == "mps is off"
    assert {"tp_processes", "replicas", "endpoints", "max_in_flight", "warnings", "plan_only"} < (
        plan.keys()
    )


def test_the_json_of_a_plan_is_json() -> None:
    shared: dict[str, Any] = {"gpu_memory_fraction": 0.2, "engine": {"max_total_tokens": 9}}
    config = chain(
        engine("brain", gpu=(0, 1), tp_size=2, gpu_memory_fraction=0.2),
        engine("llm", gpu=0, **shared),
        mps="auto",
        weight_share="on",
        processes=replicas(llm=[0, 0]),
    )
    plan = prepare_pipeline_runtime(config).to_json()
    assert json.loads(json.dumps(plan)) == plan


def test_a_chain_longer_than_pythons_stack_is_planned() -> None:
    config = chain(*(stage(f"s{index}") for index in range(1500)))
    assert len(prepare_pipeline_runtime(config).process_plan.groups) == 1500


def test_one_configuration_has_one_plan() -> None:
    config = resolve_case(SPEECH).config
    assert prepare_pipeline_runtime(config).to_json() == prepare_pipeline_runtime(config).to_json()


def test_problems_of_every_kind_come_together() -> None:
    config = chain(
        engine("a", gpu=0, engine={"max_runing_requests": 3, "max_queued_requests": -1}),
        stage("b", gpu=0, factory={"device": "cuda:4"}),
        weight_share="on",
    )
    with pytest.raises(PlanError) as refusal:
        prepare_pipeline_runtime(config, environ={"CUDA_VISIBLE_DEVICES": "0"})
    assert {problem.path for problem in refusal.value.problems} == {
        "stages.a.gpu_memory_fraction",
        "weight_share",
        "stages.a.engine.max_queued_requests",
        "stages.b.factory.device",
        "stages.a.engine.max_runing_requests",
    }
