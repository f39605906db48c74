"""Which placements of the Qwen3-Omni speech stages make sense.

Thinker and talker both size a KV cache, so on one GPU they take each other's memory unless every
stage there says how much it may use. The colocated pipeline demands that; the two-GPU pipeline
keeps them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from omni_config.errors import Problem
from omni_config.schema import StageConfig, engine_of

if TYPE_CHECKING:
    from omni_config.planning.instances import StageInstance
    from omni_config.planning.placement import PlacementPlan
    from omni_config.schema import PipelineConfig

AR_STAGES = ("thinker", "talker_ar")
GPU_STAGES = ("image_encoder", "audio_encoder", "thinker", "talker_ar", "code2wav")
FRACTION_TOLERANCE = 0.001
COLOCATED = "Qwen3OmniSpeechColocatedPipelineConfig"


def gathering_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Refuse to gather prefills by a clock where several ranks must start the same one."""
    thinker = config.by_name["thinker"]
    if thinker.tp_size > 1 and (thinker.factory.prefill_coalesce_requests or 0) > 1:
        yield Problem(
            "stages.thinker.factory.prefill_coalesce_requests",
            f"Stage 'thinker' gathers prefills by a clock, but has tp_size={thinker.tp_size}: its "
            "ranks must start the same prefill in the same step; write 0",
        )


def separate_problems(plan: PlacementPlan) -> Iterator[Problem]:
    """Keep thinker and talker on different GPUs.

    A tensor-parallel thinker may meet the talker on one of its GPUs; that both bound their memory
    there is a rule for any two engines on one GPU.
    """
    for gpu_id, instances in plan.by_gpu.items():
        thinkers = [instance for instance in instances if instance.stage == "thinker"]
        talkers = [instance for instance in instances if instance.stage == "talker_ar"]
        if not thinkers or not talkers:
            continue
        pair = thinkers[0], talkers[0]
        if any(it.config.tp_size > 1 for it in pair) and not any(it.replicated for it in pair):
            continue
        yield Problem(
            pair[1].device_path,
            f"Qwen {_shown(pair[0])} and {_shown(pair[1])} may share a GPU only with {COLOCATED} "
            f"or its subclasses; both are on GPU {gpu_id}",
        )


def colocated_problems(plan: PlacementPlan) -> list[Problem]:
    """Demand one GPU, one copy, and a budget of every stage that uses the GPU.

    The first broken demand hides the ones after it, which would be about the same mistake. With all
    five stages on the CPU there is no GPU to share and nothing to demand.
    """
    if not plan.gpus:
        return []
    for check in (_copy_problems, _rank_problems, _device_problems):
        problems = list(check(plan))
        if problems:
            return problems
    return [*_budget_problems(plan), *_fraction_problems(plan)]


def _copy_problems(plan: PlacementPlan) -> Iterator[Problem]:
    copied = [instance for instance in plan.instances if instance.replicated]
    if copied:
        yield Problem(
            f"processes.{copied[0].logical_process}.num_replicas",
            "Qwen colocated speech does not support process replicas; got replicated stage(s) "
            f"{sorted({instance.stage for instance in copied})}",
        )


def _rank_problems(plan: PlacementPlan) -> Iterator[Problem]:
    for name in AR_STAGES:
        if _only(plan, name).config.tp_size > 1:
            yield Problem(
                f"stages.{name}.tp_size",
                f"Qwen Phase 1 colocation does not support {name} TP: colocated speech runs on one "
                "GPU; use Qwen3OmniSpeechPipelineConfig for more",
            )


def _device_problems(plan: PlacementPlan) -> Iterator[Problem]:
    instances = [_only(plan, name) for name in GPU_STAGES]
    wrong = sorted(instance.stage for instance in instances if len(instance.gpu_ids) != 1)
    elsewhere = [it for it in instances if it.gpu_ids != instances[0].gpu_ids]
    if wrong:
        yield Problem(
            f"stages.{wrong[0]}.gpu",
            f"Qwen colocated speech requires exactly one GPU id for {wrong}",
        )
    elif elsewhere:
        shown = ", ".join(f"{instance.stage} on {instance.gpu_ids[0]}" for instance in instances)
        yield Problem(
            elsewhere[0].device_path,
            "Qwen colocated speech requires image_encoder, audio_encoder, thinker, talker_ar, and "
            f"code2wav to share one GPU; got {shown}",
        )


def _budget_problems(plan: PlacementPlan) -> Iterator[Problem]:
    missing = sorted(name for name in GPU_STAGES if not _has_budget(_only(plan, name).config))
    if missing:
        yield Problem(
            f"stages.{missing[0]}.gpu_memory_fraction",
            "Qwen colocated speech requires gpu_memory_fraction or engine.kv_cache_bytes for "
            f"{missing}; engine.kv_cache_bytes counts for {' and '.join(AR_STAGES)} only, "
            "total_reserve_bytes for every stage",
        )


def _fraction_problems(plan: PlacementPlan) -> Iterator[Problem]:
    for name in AR_STAGES:
        stage = _only(plan, name).config
        whole, static = stage.gpu_memory_fraction, engine_of(stage).mem_fraction_static
        if whole is None or static is None or abs(whole - static) <= FRACTION_TOLERANCE:
            continue
        yield Problem(
            f"stages.{name}.engine.mem_fraction_static",
            f"Qwen colocated speech stage {name} sets conflicting memory fractions: "
            f"gpu_memory_fraction={whole:.3f}, mem_fraction_static={static:.3f}; write only "
            "gpu_memory_fraction",
        )


def _only(plan: PlacementPlan, stage: str) -> StageInstance:
    """Return the only copy of a stage."""
    return plan.by_stage[stage][0]


def _has_budget(stage: StageConfig) -> bool:
    return (
        stage.gpu_memory_fraction is not None
        or stage.total_reserve_bytes is not None
        or engine_of(stage).kv_cache_bytes is not None
    )


def _shown(instance: StageInstance) -> str:
    return f"{instance.stage} ('{instance.name}')" if instance.replicated else instance.stage
