"""Plans what was resolved, so that a refusal also says where the value was written."""

from __future__ import annotations

from collections.abc import Mapping

from omni_config.errors import PlanError
from omni_config.planning.devices import DeviceTable
from omni_config.planning.plan import PipelineRuntime, prepare_pipeline_runtime
from omni_config.resolution.provenance import located
from omni_config.resolution.resolve import Resolution


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
