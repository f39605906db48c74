"""Whether declared memory budgets can hold: against the card, against each other, for engines.

A stage's footprint is what it declared: a fraction of the card, or bytes. A KV cache is part of
that footprint, so it must fit inside it. An engine that declared nothing takes what it finds, which
works once per card.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from omni_config.errors import Problem
from omni_config.planning.devices import DeviceTable
from omni_config.planning.instances import StageInstance
from omni_config.planning.placement import (
    GpuPlan,
    PlacementPlan,
    has_footprint,
    shared_by_processes,
)
from omni_config.schema import EngineStageConfig
from omni_config.units import format_gib

FRACTION_MATCH_TOLERANCE = 1e-3
"""Two spellings of one budget may differ by rounding, not by more."""


def capacity_problems(plan: PlacementPlan, devices: DeviceTable) -> Iterator[Problem]:
    """Refuse budgets that exceed the memory of a card, wherever it is known."""
    for gpu in plan.gpus.values():
        memory = devices.memory_bytes(gpu.gpu_id)
        if memory is None:
            continue
        instances = plan.by_gpu[gpu.gpu_id]
        yield from _kv_capacity_problems(gpu, instances, memory)
        yield from _total_capacity_problems(gpu, instances, memory)
        yield from _kv_above_fraction_problems(gpu, instances, memory)


def contradiction_problems(plan: PlacementPlan) -> Iterator[Problem]:
    """Refuse an engine whose static memory is larger than the share its stage may use."""
    for instance in plan.instances:
        fraction, static = instance.config.gpu_memory_fraction, _mem_fraction_static(instance)
        if instance.replica_index or fraction is None or static is None:
            continue
        if static > fraction + FRACTION_MATCH_TOLERANCE:
            yield Problem(
                f"stages.{instance.stage}.engine.mem_fraction_static",
                f"Stage '{instance.stage}' sets conflicting memory fractions: "
                f"engine.mem_fraction_static={static:.3f} takes more of the GPU than the stage's "
                f"own gpu_memory_fraction={fraction:.3f}",
            )


def unbounded_engine_problems(plan: PlacementPlan) -> Iterator[Problem]:
    """Refuse two engines on one card when one has no bound: it would size its KV cache to the card.

    No setting switches this off, unlike the rule that all stages on a shared card declare a
    footprint.
    """
    for gpu_id, instances in plan.by_gpu.items():
        engines = tuple(i for i in instances if isinstance(i.config, EngineStageConfig))
        if not shared_by_processes(engines):
            continue
        unbounded = [engine for engine in engines if not _is_bounded(engine)]
        if unbounded:
            yield Problem(
                f"stages.{unbounded[0].stage}.gpu_memory_fraction",
                f"GPU {gpu_id} is shared by the engines {_names(engines)} of different processes, "
                f"but {_names(unbounded)} would take all free memory; set gpu_memory_fraction, "
                "total_reserve_bytes, engine.kv_cache_bytes or engine.mem_fraction_static",
            )


def uncounted_warnings(plan: PlacementPlan) -> Iterator[str]:
    """Say where `engine.mem_fraction_static`, which no rule counts, lifts a card's sum over 1."""
    for gpu_id, instances in plan.by_gpu.items():
        static = [i for i in instances if not has_footprint(i) and _mem_fraction_static(i)]
        total = plan.gpus[gpu_id].total_gpu_memory_fraction + sum(
            _mem_fraction_static(instance) or 0.0 for instance in static
        )
        if static and shared_by_processes(instances) and total > 1.0 + FRACTION_MATCH_TOLERANCE:
            yield (
                f"GPU {gpu_id}: engine.mem_fraction_static of {_names(static)} and the declared "
                f"fractions sum to {total:.3f}; only gpu_memory_fraction is counted against the "
                "placement limit"
            )


def _kv_capacity_problems(
    gpu: GpuPlan, instances: tuple[StageInstance, ...], memory: int
) -> Iterator[Problem]:
    if gpu.kv_cache_bytes <= memory:
        return
    owners = [instance for instance in instances if instance.kv_cache_bytes]
    yield Problem(
        f"stages.{owners[0].stage}.engine.kv_cache_bytes",
        f"GPU {gpu.gpu_id} declared KV pools alone exceed physical memory: {format_gib(memory)} of "
        f"VRAM against {format_gib(gpu.kv_cache_bytes)} summed over engine.kv_cache_bytes of "
        f"{_names(owners)}. Lower engine.kv_cache_bytes or reduce the replica count.",
    )


def _total_capacity_problems(
    gpu: GpuPlan, instances: tuple[StageInstance, ...], memory: int
) -> Iterator[Problem]:
    """Add up every footprint; a KV cache counts only where no footprint contains it."""
    loose = [i for i in instances if i.kv_cache_bytes and not has_footprint(i)]
    loose_bytes = sum(instance.kv_cache_bytes or 0 for instance in loose)
    fraction, reserved = gpu.total_gpu_memory_fraction, gpu.total_reserve_bytes
    total = fraction * memory + reserved + loose_bytes
    # Fractions alone are the placement limit's business, KV caches alone the rule above.
    if total <= memory or not (reserved or (loose_bytes and fraction)):
        return
    declared = [i for i in instances if has_footprint(i) or i.kv_cache_bytes]
    kv_term = f" plus engine.kv_cache_bytes {format_gib(loose_bytes)}" if loose else ""
    yield Problem(
        f"stages.{declared[-1].stage}",
        f"GPU {gpu.gpu_id} declared budgets exceed physical memory: fraction {fraction:.3f} of "
        f"{format_gib(memory)} plus total_reserve_bytes {format_gib(reserved)}{kv_term} = "
        f"{format_gib(total)}, declared by {_names(declared)}. Lower the stage budgets or move a "
        "stage to another GPU.",
    )


def _kv_above_fraction_problems(
    gpu: GpuPlan, instances: tuple[StageInstance, ...], memory: int
) -> Iterator[Problem]:
    for instance in instances:
        fraction, kv_bytes = instance.config.gpu_memory_fraction, instance.kv_cache_bytes
        if fraction is None or kv_bytes is None or kv_bytes <= fraction * memory:
            continue
        yield Problem(
            f"stages.{instance.stage}.engine.kv_cache_bytes",
            f"Stage '{instance.stage}': engine.kv_cache_bytes ({format_gib(kv_bytes)}) does not "
            f"fit in gpu_memory_fraction={fraction:g} of GPU {gpu.gpu_id}'s {format_gib(memory)} "
            f"({format_gib(fraction * memory)}), which must hold the KV cache and everything else "
            "of the stage",
        )


def _mem_fraction_static(instance: StageInstance) -> float | None:
    stage = instance.config
    return stage.engine.mem_fraction_static if isinstance(stage, EngineStageConfig) else None


def _is_bounded(engine: StageInstance) -> bool:
    return has_footprint(engine) or bool(engine.kv_cache_bytes or _mem_fraction_static(engine))


def _names(instances: Iterable[StageInstance]) -> str:
    return ", ".join(instance.name for instance in instances)
