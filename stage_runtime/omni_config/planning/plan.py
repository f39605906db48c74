"""The whole plan of a pipeline: what will run where, and why, or everything that is wrong with it.

Planning starts, binds and writes nothing and reads only its arguments and the source of stage
factories, so it gives the same answer in the CLI, in the operator and in the launcher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from omni_config.consumer_keys import unknown_engine_keys
from omni_config.errors import PlanError, Problem
from omni_config.planning.admission import admission_problems, admission_warnings, max_in_flight
from omni_config.planning.budgets import (
    capacity_problems,
    contradiction_problems,
    unbounded_engine_problems,
    uncounted_warnings,
)
from omni_config.planning.devices import NO_DEVICES, DeviceTable
from omni_config.planning.draft import PlanDraft, draft_plan
from omni_config.planning.endpoints import Endpoints, endpoint_problems, plan_endpoints
from omni_config.planning.environment import shell_notes
from omni_config.planning.factory_kwargs import (
    author_problems,
    device_text_problems,
    factory_problems,
    override_problems,
)
from omni_config.planning.instances import (
    ReplicaTopology,
    StageInstance,
    device_override_warnings,
    replica_problems,
)
from omni_config.planning.mps import MpsDecision, decide_mps, mps_problems
from omni_config.planning.placement import (
    PlacementPlan,
    device_problems,
    policy_problems,
    sharing_problems,
)
from omni_config.planning.processes import ProcessPlan, process_problems
from omni_config.planning.weight_share import (
    WeightShareDecision,
    decide_weight_share,
    weight_share_problems,
)
from omni_config.schema import PipelineConfig
from omni_config.vocabulary import FactorySignature, factory_signature

Signatures = Callable[[str], FactorySignature | None]
"""From the import path of a factory to what it accepts, null when that cannot be known."""


@dataclass(frozen=True)
class PipelineRuntime:
    """A plan that satisfies every rule.

    Attributes:
        warnings: what holds but may surprise, a sentence each.
    """

    config: PipelineConfig
    process_plan: ProcessPlan
    placement_plan: PlacementPlan
    replica_topology: ReplicaTopology
    mps: MpsDecision
    weight_share: WeightShareDecision
    endpoints: Endpoints
    max_in_flight: int | None
    warnings: tuple[str, ...]

    @cached_property
    def instance_by_name(self) -> Mapping[str, StageInstance]:
        """The stage instances by name."""
        return {instance.name: instance for instance in self.replica_topology.instances}

    def to_json(self) -> dict[str, object]:
        """Return the plan as plain values under the names of this API."""
        from omni_config.planning.plan_json import plan_json

        return plan_json(self)


def prepare_pipeline_runtime(
    config: PipelineConfig,
    *,
    devices: DeviceTable | None = None,
    environ: Mapping[str, str] | None = None,
    run_id: str | None = None,
    signatures: Signatures = factory_signature,
) -> PipelineRuntime:
    """Return the plan of a pipeline.

    Args:
        devices: the GPUs it would run on; null plans without checking them.
        environ: the environment it would start from; null when that is another machine's.
        run_id: names the run directory; null derives one from the configuration.
        signatures: what each stage factory accepts.

    Raises:
        PlanError: with every problem, not the first one.
    """
    draft = draft_plan(config, devices or NO_DEVICES, environ)
    problems = tuple(dict.fromkeys(_problems(draft, run_id, signatures)))
    if problems:
        raise PlanError(problems)
    endpoints = plan_endpoints(config, draft.processes, run_id)
    mps = decide_mps(draft, endpoints.run_id)
    return PipelineRuntime(
        config=config,
        process_plan=draft.processes,
        placement_plan=draft.placement,
        replica_topology=draft.topology,
        mps=mps,
        weight_share=decide_weight_share(draft, endpoints.run_directory, endpoints.run_id),
        endpoints=endpoints,
        max_in_flight=max_in_flight(config),
        warnings=(*_warnings(draft), *mps.warnings),
    )


def _problems(draft: PlanDraft, run_id: str | None, signatures: Signatures) -> Iterator[Problem]:
    config, placement = draft.config, draft.placement
    yield from replica_problems(config)
    yield from device_problems(placement, draft.devices, draft.environ)
    yield from sharing_problems(config, placement)
    policy = policy_problems(config, placement)
    yield from policy
    if not policy:
        # A policy that demands budgets has already named the engines without one.
        yield from unbounded_engine_problems(placement)
        yield from contradiction_problems(placement)
    yield from process_problems(draft.topology, draft.processes)
    yield from endpoint_problems(config, draft.processes, run_id)
    yield from capacity_problems(placement, draft.devices)
    yield from weight_share_problems(draft)
    yield from mps_problems(draft)
    yield from admission_problems(config)
    yield from device_text_problems(config, placement)
    yield from _consumer_problems(config, signatures)


def _consumer_problems(config: PipelineConfig, signatures: Signatures) -> Iterator[Problem]:
    for stage in config.stages:
        yield from author_problems(config, stage)
        yield from unknown_engine_keys(stage)
        yield from override_problems(stage)
        signature = signatures(stage.factory_path)
        if signature is not None:
            yield from factory_problems(config, stage, signature)


def _warnings(draft: PlanDraft) -> Iterator[str]:
    return chain(
        device_override_warnings(draft.config),
        uncounted_warnings(draft.placement),
        admission_warnings(draft.config),
        shell_notes(draft.config, draft.environ or {}),
    )
