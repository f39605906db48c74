"""Weight sharing: what can never work is refused before a checkpoint is loaded."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from omni_config.errors import ConfigError, PlanError
from omni_config.planning.plan import prepare_pipeline_runtime
from omni_config.schema import PipelineConfig, StageConfig
from tests.support.pipelines import chain, engine, replicas, stage

CAPPED: dict[str, Any] = {
    "gpu": 0,
    "gpu_memory_fraction": 0.3,
    "engine": {"max_total_tokens": 1000},
}


class Audited(PipelineConfig):
    """Serves one architecture that was audited and one that was not."""

    architectures: ClassVar[tuple[str, ...]] = ("GoodModel", "NewModel")
    weight_share_architectures: ClassVar[tuple[str, ...]] = ("GoodModel",)


def _shared(*stages: StageConfig, **settings: Any) -> PipelineConfig:
    return chain(*stages, weight_share="on", processes=replicas(llm=[0, 0]), **settings)


def _refusal(config: PipelineConfig) -> tuple[str, str]:
    with pytest.raises(PlanError) as refusal:
        prepare_pipeline_runtime(config)
    (problem,) = refusal.value.problems
    return problem.path, problem.message


def test_an_architecture_that_was_not_audited_is_refused_by_the_plan() -> None:
    path, message = _refusal(_shared(engine("llm", **CAPPED), pipeline=Audited))
    assert path == "weight_share"
    assert "unsupported for architecture 'NewModel'; audited architectures: GoodModel" in message


def test_a_model_without_an_audit_list_is_planned() -> None:
    decision = prepare_pipeline_runtime(_shared(engine("llm", **CAPPED))).weight_share
    assert decision.decision == "on"
    assert decision.reason == "GPU 0: llm@r0 loads for llm@r1"


@pytest.mark.parametrize("name", ["../elsewhere", "/etc", "a/b", "..", "."])
def test_a_process_name_cannot_move_the_store_out_of_the_run_directory(name: str) -> None:
    with pytest.raises(ConfigError, match="Process name"):
        chain(engine("llm", process=name, **CAPPED))


def test_the_store_lies_in_the_run_directory() -> None:
    runtime = prepare_pipeline_runtime(_shared(engine("llm", **CAPPED)), run_id="r1")
    (share,) = runtime.weight_share.groups
    assert share.store == f"{runtime.endpoints.run_directory}/weights/llm/gpu0"
    assert runtime.endpoints.run_directory.endswith("-r1")


@pytest.mark.parametrize(
    ("stages", "held"),
    [
        pytest.param((stage("llm", gpu=0, gpu_memory_fraction=0.3),), "none", id="no engine"),
        pytest.param(
            (engine("llm", **CAPPED), engine("second", process="llm", **CAPPED)),
            "llm, second",
            id="two engines",
        ),
    ],
)
def test_a_process_must_hold_exactly_one_engine(stages: tuple[StageConfig, ...], held: str) -> None:
    config = chain(
        *(it.model_copy(update={"gpu_memory_fraction": 0.1}) for it in stages),
        weight_share="on",
        processes=replicas(llm=[0, 0]),
    )
    path, message = _refusal(config)
    assert path == "weight_share"
    assert message.endswith(f"process 'llm', which holds {held}")


def test_every_process_is_told_that_its_weights_may_be_shared() -> None:
    config = _shared(stage("front"), engine("llm", **CAPPED))
    environment = prepare_pipeline_runtime(config).weight_share.environment
    assert environment["front"] == {"OMNI_WEIGHT_SHARE_COMPAT": "1"}
    assert set(environment) == {"front", "llm@r0", "llm@r1"}


CPU_CAPPED: dict[str, Any] = {"engine": {"max_total_tokens": 1000}}


def _on_the_cpu(*stages: StageConfig, **copies: int) -> PipelineConfig:
    return chain(*stages, weight_share="on", processes=replicas(**copies))


def test_copies_of_an_engine_on_the_cpu_share_main_memory() -> None:
    config = _on_the_cpu(stage("front"), engine("llm", **CPU_CAPPED), llm=3, front=2)
    runtime = prepare_pipeline_runtime(config, run_id="r1")
    (share,) = runtime.weight_share.groups
    assert (share.gpu_id, share.leader, share.followers) == (None, "llm@r0", ("llm@r1", "llm@r2"))
    assert share.store == f"{runtime.endpoints.run_directory}/weights/llm/cpu"
    assert runtime.weight_share.reason == "CPU: llm@r0 loads for llm@r1, llm@r2"


def test_copies_on_the_cpu_without_an_engine_have_no_weights_to_share() -> None:
    path, message = _refusal(_on_the_cpu(stage("front"), engine("llm", **CPU_CAPPED), front=2))
    assert path == "weight_share"
    assert "two or more replicas of an engine on the CPU" in message


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("quantization", "fp8"),
        ("cpu_offload_gb", 4),
        ("enable_memory_saver", True),
        ("enable_eplb", True),
        ("speculative_algorithm", "EAGLE"),
        ("weight_cache_mode", "client"),
    ],
)
def test_what_changes_weights_after_loading_is_refused(setting: str, value: object) -> None:
    settings = {**CAPPED, "engine": {**CAPPED["engine"], setting: value}}
    path, message = _refusal(_shared(engine("llm", **settings)))
    assert path == f"stages.llm.engine.{setting}"
    assert f"stage 'llm' has {setting}={value!r}, and shares its weights" in message


@pytest.mark.parametrize("value", [0, False, None, "off"])
def test_what_is_switched_off_changes_nothing(value: object) -> None:
    settings = {**CAPPED, "engine": {**CAPPED["engine"], "weight_cache_mode": value}}
    runtime = prepare_pipeline_runtime(_shared(engine("llm", **settings)))
    assert runtime.weight_share.decision == "on"
