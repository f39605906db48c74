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
