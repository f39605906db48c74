"""From factories to schedulers, and what is said when a factory fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from examples.echo.stages import make_reverse, trim
from omni_runtime.group_stages import FactoryFailed, StageBuild, build_schedulers, scheduler_of
from omni_runtime.simple_scheduler import SimpleScheduler
from omni_runtime.stage_wiring import HookNotFound
from omni_runtime.weight_share.errors import CannotShare
from omni_runtime.weight_share.role import WeightShareRole
from omni_runtime.weight_share.share import WeightShare

REVERSE = "examples.echo.stages.make_reverse"


def test_a_scheduler_is_taken_as_it_is_and_a_function_is_wrapped() -> None:
    made = make_reverse()
    assert scheduler_of(made) is made
    assert isinstance(scheduler_of(trim), SimpleScheduler)


def test_stages_are_built_with_their_arguments() -> None:
    builds = [StageBuild("a", REVERSE, {"max_concurrency": 2}), StageBuild("b@r1", REVERSE, {})]
    assert list(build_schedulers(builds, lock_file=None)) == ["a", "b@r1"]


@pytest.mark.parametrize(
    ("path", "arguments", "error", "problem"),
    [
        pytest.param(REVERSE, {"speed": 1}, FactoryFailed, "a: .*'speed'", id="raises"),
        pytest.param("builtins.int", {}, FactoryFailed, "not int", id="makes no scheduler"),
        pytest.param("examples.nowhere.make", {}, HookNotFound, "nowhere", id="no module"),
        pytest.param("examples.echo.stages.time", {}, HookNotFound, "callable", id="no function"),
        pytest.param("make", {}, HookNotFound, "make", id="no path"),
    ],
)
def test_what_cannot_be_built_is_named(
    path: str, arguments: dict[str, Any], error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        build_schedulers([StageBuild("a", path, arguments)], lock_file=None)


def test_weights_that_no_stage_shares_are_an_error() -> None:
    share = WeightShare(WeightShareRole("leader", Path("/store"), "run"), {})
    with pytest.raises(CannotShare, match="no stage of this process loaded a model through it"):
        build_schedulers([StageBuild("a", REVERSE, {})], lock_file=None, share=share)
