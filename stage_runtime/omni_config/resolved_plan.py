"""Plans what was resolved, so that a refusal also says where the value was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omni_config.devices import DeviceTable
from omni_config.errors import PlanError, Problem
from omni_config.paths import Path
from omni_config.plan import PipelineRuntime, prepare_pipeline_runtime
from omni_config.provenance import Trace
from omni_config.resolve import Resolution


def plan_resolution(
    resolution: Resolution,
    *,
    devices: DeviceTable | None = None,
    environ: Mapping[str, str] | None = None,
    run_id: str | None = None,
) -> PipelineRuntime:
    """Return the plan of a resolved pipeline; see `prepare_pipeline_runtime`.

    Raises:
        PlanError: with every problem, each pointing at who wrote its value.
    """
    try:
        return prepare_pipeline_runtime(
            resolution.config, devices=devices, environ=environ, run_id=run_id
        )
    except PlanError as error:
        located_problems = [located(problem, resolution.traces) for problem in error.problems]
        raise PlanError(located_problems) from None


def located(problem: Problem, traces: Mapping[Path, Trace]) -> Problem:
    """Point a problem at who wrote its value, or wrote nearest to it, unless it already points."""
    if problem.where or not problem.path:
        return problem
    path = tuple(problem.path.split("."))
    shortest = 2 if path[0] == "stages" else 1
    for length in range(len(path), shortest - 1, -1):
        found = [trace for at, trace in traces.items() if at[:length] == path[:length]]
        if found:
            return replace(problem, where=found[-1].winner.source.where)
    return problem
