"""The whole plan of a pipeline: what will run where, and why, or everything that is wrong with it.

Planning starts, binds and writes nothing and reads only its arguments, so it gives the same answer in the CLI, in
the operator and in the launcher.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omni_config.devices import NO_DEVICES, DeviceTable
from omni_config.errors import PlanError, Problem
from omni_config.instances import (
    ReplicaTopology,
    device_override_warnings,
    expand_replicas,
    replica_problems,
)
from omni_config.placement import (
    PlacementPlan,
    device_problems,
    plan_placement,
    policy_problems,
    sharing_problems,
)
from omni_config.processes import ProcessPlan, plan_processes, process_problems
from omni_config.schema import PipelineConfig


@dataclass(frozen=True, slots=True)
class PipelineRuntime:
    """A plan that satisfies every rule."""

    config: PipelineConfig
    process_plan: ProcessPlan
    placement_plan: PlacementPlan
    replica_topology: ReplicaTopology
    warnings: tuple[str, ...]


def prepare_pipeline_runtime(
    config: PipelineConfig,
    *,
    devices: DeviceTable | None = None,
    environ: Mapping[str, str] | None = None,
) -> PipelineRuntime:
    """Return the plan of a pipeline.

    Args:
        devices: the GPUs it would run on; null plans without checking them.
        environ: the environment it would start from; null when that is another machine's.

    Raises:
        PlanError: with every problem, not the first one.
    """
    table = devices or NO_DEVICES
    topology = expand_replicas(config)
    placement = plan_placement(topology)
    processes = plan_processes(topology)
    problems = [
        *replica_problems(config),
        *device_problems(placement, table),
        *sharing_problems(config, placement),
        *policy_problems(config, placement),
        *process_problems(topology, processes),
    ]
    if problems:
        raise PlanError(_unique(problems))
    return PipelineRuntime(
        config=config,
        process_plan=processes,
        placement_plan=placement,
        replica_topology=topology,
        warnings=tuple(device_override_warnings(config)),
    )


def _unique(problems: list[Problem]) -> list[Problem]:
    return list(dict.fromkeys(problems))
