"""Hand-made pipelines against the rules of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from omni_config.errors import ConfigError
from omni_config.planning.plan import prepare_pipeline_runtime
from omni_config.schema import EngineStageConfig, PipelineConfig, StageConfig
from tests.support.config import Case, cases, deviations

DEVIATIONS = deviations("graph")


class HandMade(PipelineConfig):
    """Takes its stages as data, as no shipped pipeline does."""

    local_edges: ClassVar[tuple[tuple[str, str], ...]] = ()


def build(given: Mapping[str, Any]) -> PipelineConfig:
    engines = given.get("engine_stages", ())
    stages = tuple(
        (EngineStageConfig if stage["name"] in engines else StageConfig).model_validate(stage)
        for stage in given["pipeline"]["stages"]
    )
    edges = tuple(tuple(edge) for edge in given.get("process_local_edges", ()))
    pipeline: type[HandMade] = type("Edged", (HandMade,), {"local_edges": edges})
    settings = {"model_path": "m", **given["pipeline"], "stages": stages}
    return pipeline.model_validate(settings)


@pytest.mark.parametrize("case", cases("graph"), ids=lambda case: case["id"])
def test_a_graph_is_accepted_or_refused_as_the_case_says(case: Case) -> None:
    expected = DEVIATIONS.get(case["id"], {}).get("expected") or case["expected"]
    if not expected["ok"]:
        says = expected.get("says") or expected["error"]["problems"][0]["says"]
        with pytest.raises((ConfigError, ValidationError)) as refused:
            build(case["input"])
        assert says in str(refused.value)
        return
    plan = prepare_pipeline_runtime(build(case["input"]))
    groups = [
        {"name": g.name, "gpu": g.gpu_id, "stages": list(g.stage_names)}
        for g in plan.process_plan.groups
    ]
    assert groups == expected["plan"]["groups"]
    assert plan.config.entry == expected["plan"]["entry"]


def stage(name: str, **fields: Any) -> StageConfig:
    return StageConfig.model_validate(
        {"name": name, "factory_path": "x.y", "process": "p", **fields}
    )


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        pytest.param(
            [stage("a", next="b"), stage("b", next="c"), stage("c", next="b")],
            "b -> c -> b",
            id="payloads go round",
        ),
        pytest.param(
            [stage("a", terminal=True), stage("b", terminal=True)],
            "'b' is not reachable from the entry stage 'a'",
            id="nobody reaches a stage",
        ),
        pytest.param(
            [
                stage("a", next=["b", "c"]),
                stage("b", terminal=True),
                stage("c", terminal=True, wait_for=["a", "b"], merge_fn="x.y"),
            ],
            "'c' waits for 'b', but 'b' never sends to it",
            id="a wait that nobody feeds",
        ),
        pytest.param(
            [stage("a", terminal=True), stage("a", terminal=True)],
            "'a' is declared 2 times",
            id="two stages of one name",
        ),
        pytest.param(
            [stage("a", terminal=True, process="../outside")],
            "must be letters, digits",
            id="a process name that is a path",
        ),
    ],
)
def test_a_graph_that_would_hang_or_escape_is_refused(stages: list[StageConfig], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        HandMade(model_path="m", stages=tuple(stages))
    assert says in str(refused.value)


def test_an_edge_that_cannot_leave_a_process_keeps_both_stages_in_one() -> None:
    stages = (stage("a", next="b"), stage("b", terminal=True, process="q"))

    class Edged(HandMade):
        local_edges = (("a", "b"),)

    with pytest.raises(ConfigError, match="give both the same process"):
        Edged(model_path="m", stages=stages)


def test_every_broken_rule_is_reported_at_once() -> None:
    stages = (
        stage("a", next="nowhere", gpu=-1),
        stage("b", terminal=True, gpu_memory_fraction=0.5, env={"CUDA_VISIBLE_DEVICES": "1"}),
    )
    with pytest.raises(ConfigError) as refused:
        HandMade(model_path="m", stages=stages)
    paths = {problem.path for problem in refused.value.problems}
    assert {
        "stages.a.next",
        "stages.a.gpu",
        "stages.b.gpu_memory_fraction",
        "stages.b.env.CUDA_VISIBLE_DEVICES",
    } <= paths
