"""The cases about what one process is started with: factory arguments and environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from omni_config.errors import PlanError
from omni_config.planning.environment import Host, rank_environment, worker_environment
from omni_config.planning.factory_kwargs import (
    Injection,
    author_problems,
    factory_kwargs,
    factory_problems,
)
from omni_config.schema import EngineStageConfig, PipelineConfig, StageConfig
from omni_config.settings import EngineArgs, FactoryArgs
from omni_config.vocabulary import FactorySignature
from tests.support.config import Case, load_case
from tests.support.planning import accepted, assert_refusal, planning_cases, signature

FACTORY = "model.factories.create"


class OneStage(PipelineConfig):
    """A pipeline of one stage, whose author passes what a case says."""

    author: ClassVar[dict[str, object]] = {}

    def stage_factory_kwargs(self, stage: StageConfig) -> dict[str, object]:
        """Return the author channel of the case."""
        return dict(self.author)


@pytest.mark.parametrize("case", planning_cases("factory"), ids=lambda case: case["id"])
def test_factory_arguments_are_merged_as_the_case_says(case: Case) -> None:
    given, expected = case["input"], case["expected"]
    known = signature(FACTORY, given["factory_params"])
    kwargs = accepted(lambda: _merged_kwargs(given, known), expected)
    if kwargs is not None:
        assert kwargs == expected["kwargs"]


@pytest.mark.parametrize("case", planning_cases("tp-env"), ids=lambda case: case["id"])
def test_a_rank_starts_with_the_environment_of_the_case(case: Case) -> None:
    given, expected = case["input"], case["expected"]
    gpu_ids = tuple(range(given["tp_size"])) if given["tp_size"] > 1 else given["gpu"]
    stage = EngineStageConfig(
        name="thinker", factory_path=FACTORY, terminal=True, gpu=gpu_ids, tp_size=given["tp_size"]
    )
    if not expected["ok"]:
        with pytest.raises(PlanError) as refusal:
            rank_environment(stage, given["gpu"], given["environ"])
        assert_refusal(str(refusal.value), expected)
        return
    assert rank_environment(stage, given["gpu"], given["environ"]) == expected["env"]


@pytest.mark.parametrize("case", planning_cases("spawn-env"), ids=lambda case: case["id"])
def test_a_process_starts_with_the_environment_of_the_case(case: Case) -> None:
    given, expected = case["input"], case["expected"]
    environ = given.get("environ", {})
    config = accepted(lambda: load_case(given), expected)
    if config is None:
        return
    stages = [stage for stage in config.stages if stage.process_name == given["process"]]
    changed = worker_environment(config, stages, Host(environ), process_count=1)
    assert {key: changed[key] for key in given["watch"] if key in changed} == expected["changed"]
    assert {
        key: environ[key] for key in given["watch"] if key in environ and key not in changed
    } == expected["unchanged"]


def _merged_kwargs(given: Mapping[str, Any], known: FactorySignature) -> dict[str, object]:
    config = _one_stage(given)
    stage = config.stages[0]
    problems = [*author_problems(config, stage), *factory_problems(config, stage, known)]
    if problems:
        raise PlanError(problems)
    return factory_kwargs(config, stage, known, Injection(given.get("gpu")))


def _one_stage(given: Mapping[str, Any]) -> PipelineConfig:
    cls = type("OneStage", (OneStage,), {"author": given.get("author", {}), "__module__": __name__})
    fields: dict[str, Any] = {
        "name": "s",
        "factory_path": FACTORY,
        "terminal": True,
        "process": "p",
        "gpu": given.get("gpu"),
        "gpu_memory_fraction": given.get("gpu_memory_fraction"),
        "factory": FactoryArgs.model_validate(given.get("factory", {})),
    }
    if "engine" in given:
        engine = EngineArgs.model_validate(given["engine"])
        stage: StageConfig = EngineStageConfig(engine=engine, **fields)
    else:
        stage = StageConfig(**fields)
    config = cls(model_path="m", stages=(stage,), processes=given.get("processes", {}))
    assert isinstance(config, PipelineConfig)
    return config
