"""The admission limit: the tightest engine decides, and half a setting is told."""

from __future__ import annotations

from typing import ClassVar

import pytest

from omni_config.errors import PlanError
from omni_config.planning.plan import prepare_pipeline_runtime
from omni_config.schema import PipelineConfig
from tests.support.pipelines import chain, engine, replicas, stage


class WithDefaults(PipelineConfig):
    """A model with numbers of its own."""

    admission_defaults: ClassVar[dict[str, int]] = {
        "max_running_requests": 8,
        "max_queued_requests": 2,
    }


def _both(running: int, queued: int) -> dict[str, int]:
    return {"max_running_requests": running, "max_queued_requests": queued}


def test_the_tightest_engine_decides_whatever_its_place() -> None:
    config = chain(
        engine("thinker", gpu=0, engine=_both(16, 16)), engine("talker", gpu=1, engine=_both(4, 4))
    )
    assert prepare_pipeline_runtime(config).max_in_flight == 8


def test_copies_add_up() -> None:
    config = chain(
        engine("a", gpu=0, engine=_both(4, 4)),
        engine("b", gpu=3, engine=_both(9, 1)),
        processes=replicas(a=[0, 1]),
    )
    assert prepare_pipeline_runtime(config).max_in_flight == 10


def test_a_queue_of_none_is_a_number_and_defaults_fill_the_other() -> None:
    config = chain(engine("a", gpu=0, engine={"max_queued_requests": 0}), pipeline=WithDefaults)
    assert prepare_pipeline_runtime(config).max_in_flight == 8


def test_half_a_setting_gives_no_limit_and_says_so() -> None:
    config = chain(engine("a", gpu=0, engine={"max_running_requests": 16}))
    runtime = prepare_pipeline_runtime(config)
    assert runtime.max_in_flight is None
    (warning,) = runtime.warnings
    assert "engine.max_running_requests is set but engine.max_queued_requests is not" in warning


def test_a_pipeline_without_engines_has_no_limit() -> None:
    assert prepare_pipeline_runtime(chain(stage("a"))).max_in_flight is None


@pytest.mark.parametrize("queued", ["many", -1, True, 1.5])
def test_a_queue_length_that_is_no_count_is_refused(queued: object) -> None:
    config = chain(engine("a", gpu=0, engine={"max_queued_requests": queued}))
    with pytest.raises(PlanError) as refusal:
        prepare_pipeline_runtime(config)
    (problem,) = refusal.value.problems
    assert problem.path == "stages.a.engine.max_queued_requests"
    assert repr(queued) in problem.message
