"""What the rules of planning look at: a pipeline, laid out but not yet accepted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from omni_config.planning.devices import NO_DEVICES, DeviceTable
from omni_config.planning.instances import ReplicaTopology, StageInstance, expand_replicas
from omni_config.planning.placement import PlacementPlan, plan_placement
from omni_config.planning.processes import ProcessGroup, ProcessPlan, plan_processes
from omni_config.schema import PipelineConfig, engine_of


@dataclass(frozen=True)
class PlanDraft:
    """One layout of a pipeline, with everything that depends only on its configuration.

    Attributes:
        environ: the launcher's environment, null when that is another machine's.
        author_kwargs: what the model's author passes to each stage's factory.
    """

    config: PipelineConfig
    topology: ReplicaTopology
    processes: ProcessPlan
    placement: PlacementPlan
    author_kwargs: Mapping[str, Mapping[str, object]]
    devices: DeviceTable = field(default=NO_DEVICES)
    environ: Mapping[str, str] | None = None

    @cached_property
    def instance_by_name(self) -> Mapping[str, StageInstance]:
        """The stage instances by name."""
        return {instance.name: instance for instance in self.topology.instances}

    def members(self, group: ProcessGroup) -> tuple[StageInstance, ...]:
        """Return the stage instances of a process, in construction order."""
        return tuple(self.instance_by_name[name] for name in group.stage_names)


def draft_plan(
    config: PipelineConfig,
    devices: DeviceTable = NO_DEVICES,
    environ: Mapping[str, str] | None = None,
) -> PlanDraft:
    """Lay a pipeline out, without judging the result."""
    topology = expand_replicas(config)
    return PlanDraft(
        config=config,
        topology=topology,
        processes=plan_processes(topology),
        placement=plan_placement(topology),
        author_kwargs={stage.name: config.stage_factory_kwargs(stage) for stage in config.stages},
        devices=devices,
        environ=environ,
    )


def launch_values(draft: PlanDraft, stage_name: str) -> Iterator[tuple[str, object]]:
    """Yield every value a stage is started with, each with the path that wrote it."""
    stage = draft.config.by_name[stage_name]
    for key, value in draft.author_kwargs[stage_name].items():
        yield f"stages.{stage_name}.factory.{key}", value
    for key, value in stage.factory.written().items():
        yield f"stages.{stage_name}.factory.{key}", value
    for key, value in engine_of(stage).written().items():
        yield f"stages.{stage_name}.engine.{key}", value
