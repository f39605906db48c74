"""What runs here, as GetPipeline tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omni_config.resolution.inspection import config_yaml
from omni_config.schema import PipelineConfig, StageConfig
from omni_gateway.coordinator import Coordinator
from omni_gateway.coordinator.directory import Replica
from omni_gateway.coordinator.readiness import NOT_ANSWERED
from omni_gateway.coordinator.warm_ups import warming
from omni_wire.v1 import gateway_pb2 as pb


@dataclass(frozen=True, slots=True)
class PipelineView:
    """The configured pipeline beside the replicas that are there.

    Attributes:
        config_hash: hash of the resolved configuration.
        provenance: who set its values, by path; empty where nobody wrote that down.
    """

    config: PipelineConfig
    config_hash: str
    provenance: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the pipeline, under which clients ask for it."""
        return self.config.display_name

    def describe(self, coordinator: Coordinator, *, with_config: bool) -> pb.GetPipelineResponse:
        """Return the state of this moment."""
        directory = coordinator.state.directory
        revisions = {revision for replica in directory for revision in replica.serves}
        return pb.GetPipelineResponse(
            name=self.name,
            model=self.config.model_path,
            stages=self._stages(coordinator),
            groups=[self._group(group, coordinator) for group in coordinator.state.topology.groups],
            config_hash=self.config_hash,
            config_yaml=config_yaml(self.config) if with_config else "",
            provenance=self.provenance if with_config else {},
            gateway=coordinator.gateway,
            ready=coordinator.readiness.ready,
            revisions=sorted(revisions - {""}),
        )

    def _stages(self, coordinator: Coordinator) -> list[pb.Stage]:
        waiting = _warming(coordinator)
        return [self._stage(stage, coordinator, waiting) for stage in self.config.stages]

    def _stage(
        self, stage: StageConfig, coordinator: Coordinator, waiting: Mapping[int, str]
    ) -> pb.Stage:
        replicas = coordinator.state.directory.of_group(stage.process_name)
        return pb.Stage(
            name=stage.name,
            group=stage.process_name,
            next=stage.next,
            terminal=stage.terminal,
            modality=self.config.terminal_modalities.get(stage.name, ""),
            stream_to=stage.stream_to,
            instances=[
                _instance(stage.name, one, waiting.get(one.incarnation, "")) for one in replicas
            ],
        )

    def _group(self, group: str, coordinator: Coordinator) -> pb.Group:
        stages = [stage for stage in self.config.stages if stage.process_name == group]
        gpus = sorted({gpu for stage in stages for gpu in stage.gpu_ids})
        return pb.Group(
            name=group,
            stages=[stage.name for stage in stages],
            replicas=len(coordinator.state.directory.of_group(group)),
            gpus=gpus,
        )


def _warming(coordinator: Coordinator) -> dict[int, str]:
    """Return why replicas that are there are not warmed up yet, by incarnation."""
    state = coordinator.state
    return {
        incarnation: f"warm-up '{name}': {state.warm_up_problems.get(name, NOT_ANSWERED)}"
        for incarnation, name in warming(state.directory).items()
    }


def _instance(stage: str, replica: Replica, waiting: str) -> pb.Instance:
    endpoint = dict(replica.endpoints())[stage]
    reason = replica.not_ready.get(endpoint.instance, waiting)
    stats = replica.stats.get(endpoint.instance)
    return pb.Instance(
        name=endpoint.instance,
        address=endpoint.address,
        ready=not reason,
        reason=reason,
        queued=stats.queued if stats else 0,
        in_flight=stats.in_flight if stats else 0,
        draining=replica.draining,
        revision=replica.registration.revision,
        incarnation=replica.incarnation,
    )
