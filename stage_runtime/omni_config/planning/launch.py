"""What one process is told when it is started: environment, stages, arguments, addresses.

Launchers of every kind (a laptop, a pod's entry point) ask here, so that they differ only in how
they start a process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from omni_config.planning.devices import DeviceTable
from omni_config.planning.endpoints import startup_lock_name
from omni_config.planning.environment import (
    Host,
    children_environment,
    rank_environment,
    worker_environment,
)
from omni_config.planning.factory_kwargs import Injection, factory_kwargs
from omni_config.planning.instances import StageInstance
from omni_config.planning.plan import PipelineRuntime
from omni_config.planning.processes import ProcessGroup
from omni_config.vocabulary import FactorySignature


@dataclass(frozen=True, slots=True)
class StageLaunch:
    """One stage to construct.

    Attributes:
        name: stage instance.
        gpu_id: device as the process sees it, null on the CPU.
        process_fraction: fractions of this stage and of those built before it on the card, null
            when one of the process declared none.
        kv_cache_bytes: travels beside the arguments, because `ServerArgs` has no such field.
    """

    name: str
    stage: str
    factory_path: str
    gpu_id: int | None
    process_fraction: float | None
    kv_cache_bytes: int | None
    total_reserve_bytes: int | None
    enforce_total_reserve: bool


@dataclass(frozen=True, slots=True)
class GroupLaunch:
    """One process to start.

    Attributes:
        environment: variables on top of the launcher's own.
        startup_lock: name of the lock held while stages are constructed, null on the CPU.
        starts_last: it attaches to another process's weights, so it starts after that one.
    """

    group: ProcessGroup
    address: str
    environment: Mapping[str, str]
    stages: tuple[StageLaunch, ...]
    startup_lock: str | None
    starts_last: bool


def group_launch(
    runtime: PipelineRuntime, group: ProcessGroup, host: Host, devices: DeviceTable
) -> GroupLaunch:
    """Return what a process is told.

    Raises:
        PlanError: a rank's card is not visible to the launcher.
    """
    members = [runtime.instance_by_name[name] for name in group.stage_names]
    lock = None
    if group.gpu_id is not None:
        lock = startup_lock_name(group.gpu_id, devices, host.environ)
    return GroupLaunch(
        group=group,
        address=runtime.endpoints.addresses[group.name],
        environment=_environment(runtime, group, members, host),
        stages=tuple(_stage_launches(runtime, group, members)),
        startup_lock=lock,
        starts_last=group.name in runtime.weight_share.starts_last,
    )


def launch_kwargs(
    runtime: PipelineRuntime,
    group: ProcessGroup,
    stage: StageLaunch,
    signature: FactorySignature,
    nccl_port: int | None = None,
) -> dict[str, object]:
    """Return the keyword arguments of one stage's factory in one process."""
    injection = Injection(stage.gpu_id, stage.process_fraction, group.tp_rank, nccl_port)
    config = runtime.config
    return factory_kwargs(config, config.by_name[stage.stage], signature, injection)


def _environment(
    runtime: PipelineRuntime, group: ProcessGroup, members: Sequence[StageInstance], host: Host
) -> dict[str, str]:
    stages = [member.config for member in members]
    count = len(runtime.process_plan.all_groups)
    variables = worker_environment(runtime.config, stages, host, count)
    if group.gpu_id is not None:
        variables |= rank_environment(stages[0], group.gpu_id, host.environ)
    variables |= children_environment(group.runtime_gpu_ids, host.environ)
    variables |= runtime.mps.environment.get(group.name, {})
    variables |= runtime.weight_share.environment.get(group.name, {})
    return variables


def _stage_launches(
    runtime: PipelineRuntime, group: ProcessGroup, members: Sequence[StageInstance]
) -> list[StageLaunch]:
    sees_one_card = group.tensor_parallel or group.name in runtime.mps.environment
    local_gpu_id = 0 if sees_one_card or group.runtime_gpu_ids else group.gpu_id
    fractions = _running_fractions([member for member in members if member.gpu_ids])
    return [
        StageLaunch(
            name=member.name,
            stage=member.stage,
            factory_path=member.config.factory_path,
            gpu_id=local_gpu_id if member.gpu_ids else None,
            process_fraction=fractions.get(member.name),
            kv_cache_bytes=member.kv_cache_bytes,
            total_reserve_bytes=member.config.total_reserve_bytes,
            enforce_total_reserve=member.config.enforce_total_reserve,
        )
        for member in members
    ]


def _running_fractions(on_gpu: Sequence[StageInstance]) -> dict[str, float]:
    """Add fractions up in construction order; null for all as soon as one stage declared none."""
    declared = [member.config.gpu_memory_fraction for member in on_gpu]
    fractions = [fraction for fraction in declared if fraction is not None]
    if len(fractions) < len(declared):
        return {}
    names = [member.name for member in on_gpu]
    return dict(zip(names, accumulate(fractions), strict=True))
