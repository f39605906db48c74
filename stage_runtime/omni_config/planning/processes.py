"""From stage instances to operating-system processes.

Stages of one process group share one process and one event loop. A tensor-parallel stage is the
exception: each rank is a process of its own that holds nothing else, rank 0 leading the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from omni_config.errors import Problem
from omni_config.planning.instances import ReplicaTopology, StageInstance


class GroupKind(StrEnum):
    """What a process does for its stages."""

    PLAIN = "plain"
    TP_LEADER = "tp_leader"
    TP_FOLLOWER = "tp_follower"


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """One process to start.

    Attributes:
        name: unique in the pipeline; names sockets, pods and log lines.
        gpu_id: the one GPU its stages use, null when all run on the CPU.
        stage_names: stage instances in construction order.
        process: logical process group, shared by replicas and by the ranks of a stage.
        runtime_gpu_ids: GPUs handed on to processes the stage starts itself, else empty.
    """

    name: str
    gpu_id: int | None
    stage_names: tuple[str, ...]
    kind: GroupKind
    process: str
    replica_index: int
    replica_count: int
    tp_rank: int = 0
    tp_size: int = 1
    runtime_gpu_ids: tuple[int, ...] = ()

    @property
    def tensor_parallel(self) -> bool:
        """Whether this is one rank of a stage."""
        return self.kind is not GroupKind.PLAIN


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """Every process of the pipeline.

    Attributes:
        groups: processes that are not ranks, in order of first appearance.
        tp_groups: rank processes, stage by stage, rank 0 first.
    """

    groups: tuple[ProcessGroup, ...]
    tp_groups: tuple[ProcessGroup, ...]

    @property
    def all_groups(self) -> tuple[ProcessGroup, ...]:
        """Every process, ranks last."""
        return self.groups + self.tp_groups

    @property
    def tp_processes(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the rank processes of each tensor-parallel stage instance, in rank order."""
        names: dict[str, tuple[str, ...]] = {}
        for group in self.tp_groups:
            stage = group.stage_names[0]
            names[stage] = (*names.get(stage, ()), group.name)
        return names


def plan_processes(topology: ReplicaTopology) -> ProcessPlan:
    """Return the processes that run the instances of a pipeline."""
    members = _members_by_process(topology.instances)
    plain = [stages for stages in members.values() if not _is_parallel(stages)]
    parallel = [stages[0] for stages in members.values() if _is_parallel(stages)]
    return ProcessPlan(
        groups=tuple(_plain_group(stages) for stages in plain),
        tp_groups=tuple(group for instance in parallel for group in _rank_groups(instance)),
    )


def process_problems(topology: ReplicaTopology, plan: ProcessPlan) -> Iterator[Problem]:
    """Refuse processes on several GPUs, native children in company, and one name twice."""
    members = _members_by_process(topology.instances)
    for name, stages in members.items():
        # Copies have the same members, so the first one speaks for all.
        if stages[0].replica_index == 0 and not _is_parallel(stages):
            yield from _span_problems(name, stages)
            yield from _child_owner_problems(name, stages)
    yield from _collision_problems(topology, plan)


def _members_by_process(instances: Iterable[StageInstance]) -> dict[str, list[StageInstance]]:
    members: dict[str, list[StageInstance]] = {}
    for instance in instances:
        members.setdefault(instance.process, []).append(instance)
    return members


def _is_parallel(stages: list[StageInstance]) -> bool:
    return stages[0].config.tp_size > 1


def _plain_group(stages: list[StageInstance]) -> ProcessGroup:
    first = stages[0]
    on_gpu = [stage for stage in stages if stage.gpu_ids]
    return ProcessGroup(
        name=first.process,
        gpu_id=on_gpu[0].gpu_ids[0] if on_gpu else None,
        stage_names=tuple(stage.name for stage in stages),
        kind=GroupKind.PLAIN,
        process=first.logical_process,
        replica_index=first.replica_index,
        replica_count=first.replica_count,
        runtime_gpu_ids=first.config.runtime_gpu_ids or (),
    )


def _rank_groups(instance: StageInstance) -> Iterator[ProcessGroup]:
    for rank, gpu_id in enumerate(instance.gpu_ids):
        yield ProcessGroup(
            name=f"{instance.process}_tp{rank}",
            gpu_id=gpu_id,
            stage_names=(instance.name,),
            kind=GroupKind.TP_FOLLOWER if rank else GroupKind.TP_LEADER,
            process=instance.logical_process,
            replica_index=instance.replica_index,
            replica_count=instance.replica_count,
            tp_rank=rank,
            tp_size=len(instance.gpu_ids),
        )


def _span_problems(name: str, stages: list[StageInstance]) -> Iterator[Problem]:
    gpu_ids = sorted({gpu_id for stage in stages for gpu_id in stage.gpu_ids})
    if len(gpu_ids) <= 1:
        return
    placed = [stage for stage in stages if stage.gpu_ids]
    stray = next(stage for stage in placed if stage.gpu_ids != placed[0].gpu_ids)
    yield Problem(
        f"stages.{stray.stage}.gpu",
        f"Process group '{name}' spans multiple GPUs {gpu_ids} through stages: "
        f"{', '.join(stage.stage for stage in stages)}; give its stages one GPU, or give "
        f"'{stray.stage}' a process of its own",
    )


def _child_owner_problems(name: str, stages: list[StageInstance]) -> Iterator[Problem]:
    if len(stages) == 1:
        return
    for owner in stages:
        if not owner.config.allow_child_processes:
            continue
        others = ", ".join(stage.stage for stage in stages if stage is not owner)
        yield Problem(
            f"stages.{owner.stage}.process",
            f"A stage that owns native children must own its OS process: stage '{owner.stage}' "
            f"has allow_child_processes: true, but process '{name}' also holds {others}",
        )


def _collision_problems(topology: ReplicaTopology, plan: ProcessPlan) -> Iterator[Problem]:
    plain = {group.name: group for group in plan.groups}
    collisions = sorted({group.name for group in plan.tp_groups} & plain.keys())
    if not collisions:
        return
    stage_of = {instance.name: instance.stage for instance in topology.instances}
    stage = stage_of[plain[collisions[0]].stage_names[0]]
    yield Problem(
        f"stages.{stage}.process",
        f"TP-derived process names collide with non-TP process groups: {collisions}; rename the "
        "process of the stages that are not tensor parallel",
    )
