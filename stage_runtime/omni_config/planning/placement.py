"""Which stage instances stand on which GPU, and whether what they declared fits together there.

Fractions and bytes are promises about the whole footprint of a stage on one GPU (per rank for a
tensor-parallel stage). Rules that compare budgets with each other or with a card are in `budgets`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import fsum

from omni_config.errors import Problem
from omni_config.planning.devices import DeviceTable
from omni_config.planning.instances import ReplicaTopology, StageInstance
from omni_config.planning.visibility import visible_entries
from omni_config.schema import PipelineConfig

FRACTION_TOLERANCE = 1e-9
_FRACTION_DIGITS = 12
"""Sums are shown without the noise of binary fractions; far finer than the tolerance."""


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """What stands on one GPU.

    Attributes:
        stage_names: stage instances, in the order of the configuration.
        total_gpu_memory_fraction: sum of what they declared, 0 when none did.
        missing_fraction_stage_names: those that declared no fraction, sorted.
        kv_cache_bytes: sum of `engine.kv_cache_bytes`.
        total_reserve_bytes: sum of `total_reserve_bytes`.
    """

    gpu_id: int
    stage_names: tuple[str, ...]
    total_gpu_memory_fraction: float
    missing_fraction_stage_names: tuple[str, ...]
    kv_cache_bytes: int
    total_reserve_bytes: int


@dataclass(frozen=True)
class PlacementPlan:
    """Every GPU of the pipeline by id, and the instances that were placed.

    CPU stages are among `instances` with no `gpu_ids`, and on no GPU.
    """

    gpus: Mapping[int, GpuPlan]
    instances: tuple[StageInstance, ...]

    @cached_property
    def by_stage(self) -> Mapping[str, tuple[StageInstance, ...]]:
        """Instances of each logical stage, in replica order."""
        found: dict[str, tuple[StageInstance, ...]] = {}
        for instance in self.instances:
            found[instance.stage] = (*found.get(instance.stage, ()), instance)
        return found

    @cached_property
    def by_gpu(self) -> Mapping[int, tuple[StageInstance, ...]]:
        """Instances on each GPU, in the order of the configuration."""
        return {gpu_id: tuple(found) for gpu_id, found in _by_gpu(self.instances).items()}


def plan_placement(topology: ReplicaTopology) -> PlacementPlan:
    """Return what stands on each GPU."""
    found = _by_gpu(topology.instances)
    gpus = {gpu_id: _gpu_plan(gpu_id, found[gpu_id]) for gpu_id in sorted(found)}
    return PlacementPlan(gpus, topology.instances)


def device_problems(
    plan: PlacementPlan, devices: DeviceTable, environ: Mapping[str, str] | None
) -> Iterator[Problem]:
    """Refuse GPU ids beyond the visible devices, when their number is known."""
    count = devices.visible_count
    if count is None:
        entries = visible_entries(environ or {})
        if entries is None:
            return
        count = len(entries)
    for instance in plan.instances:
        for gpu_id in instance.gpu_ids:
            if gpu_id >= count:
                yield Problem(
                    instance.device_path,
                    f"Stage '{instance.name}': GPU id {gpu_id} out of range; only {count} visible "
                    "device(s)",
                )


def sharing_problems(config: PipelineConfig, plan: PlacementPlan) -> Iterator[Problem]:
    """Refuse sums over the limit, and shared GPUs on which a footprint is missing."""
    limit = config.placement.max_total_gpu_memory_fraction_per_gpu
    for gpu in plan.gpus.values():
        if gpu.total_gpu_memory_fraction > limit + FRACTION_TOLERANCE:
            yield Problem(
                _largest_fraction_path(plan.by_gpu[gpu.gpu_id]),
                f"GPU {gpu.gpu_id} total_gpu_memory_fraction={gpu.total_gpu_memory_fraction:.3f} "
                f"exceeds placement limit {limit:.3f}; it is the sum of "
                f"{_fraction_terms(plan.by_gpu[gpu.gpu_id])}",
            )
    for gpu_id, instances in plan.by_gpu.items():
        yield from _footprint_problems(config, gpu_id, instances)


def policy_problems(config: PipelineConfig, plan: PlacementPlan) -> list[Problem]:
    """Return what the model's own policy forbids; no setting switches it off."""
    return config.placement_problems(plan)


def shared_by_processes(instances: tuple[StageInstance, ...]) -> bool:
    """Whether the instances of one GPU belong to several processes."""
    return len({instance.process for instance in instances}) > 1


def has_footprint(instance: StageInstance) -> bool:
    """Whether the stage declared how much of a GPU it uses in all."""
    stage = instance.config
    return stage.gpu_memory_fraction is not None or stage.total_reserve_bytes is not None


def _by_gpu(instances: tuple[StageInstance, ...]) -> dict[int, list[StageInstance]]:
    found: dict[int, list[StageInstance]] = {}
    for instance in instances:
        for gpu_id in instance.gpu_ids:
            found.setdefault(gpu_id, []).append(instance)
    return found


def _gpu_plan(gpu_id: int, instances: list[StageInstance]) -> GpuPlan:
    fractions = [instance.config.gpu_memory_fraction for instance in instances]
    missing = [
        instance.name for instance in instances if instance.config.gpu_memory_fraction is None
    ]
    return GpuPlan(
        gpu_id=gpu_id,
        stage_names=tuple(instance.name for instance in instances),
        total_gpu_memory_fraction=round(
            fsum(f for f in fractions if f is not None), _FRACTION_DIGITS
        ),
        missing_fraction_stage_names=tuple(sorted(missing)),
        kv_cache_bytes=sum(instance.kv_cache_bytes or 0 for instance in instances),
        total_reserve_bytes=sum(instance.config.total_reserve_bytes or 0 for instance in instances),
    )


def _largest_fraction_path(instances: tuple[StageInstance, ...]) -> str:
    largest = max(instances, key=lambda instance: instance.config.gpu_memory_fraction or 0.0)
    return f"stages.{largest.stage}.gpu_memory_fraction"


def _fraction_terms(instances: tuple[StageInstance, ...]) -> str:
    return ", ".join(
        f"{instance.name} {instance.config.gpu_memory_fraction:g}"
        for instance in instances
        if instance.config.gpu_memory_fraction is not None
    )


def _footprint_problems(
    config: PipelineConfig, gpu_id: int, instances: tuple[StageInstance, ...]
) -> Iterator[Problem]:
    if not shared_by_processes(instances):
        return
    by_replicas = any(instance.replicated or instance.moved for instance in instances)
    if not by_replicas and not config.placement.require_memory_fraction_for_colocation:
        return
    missing = sorted(
        (instance for instance in instances if not has_footprint(instance)),
        key=lambda instance: instance.name,
    )
    if not missing:
        return
    how = (
        "has replica-induced GPU sharing" if by_replicas else "is shared by multiple process groups"
    )
    yield Problem(
        f"stages.{missing[0].stage}.gpu_memory_fraction",
        f"GPU {gpu_id} {how} without a declared total footprint (gpu_memory_fraction or "
        f"total_reserve_bytes): {', '.join(_shown(instance) for instance in missing)}",
    )


def _shown(instance: StageInstance) -> str:
    if not instance.replicated:
        return instance.stage
    return f"{instance.stage} (instance {instance.name})"
