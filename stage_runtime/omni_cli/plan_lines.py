"""A plan as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omni_cli.output import Line, Span, line
from omni_config.planning.instances import StageInstance
from omni_config.planning.placement import GpuPlan
from omni_config.planning.plan import PipelineRuntime
from omni_config.planning.processes import ProcessGroup
from omni_config.settings import MpsQuota
from omni_config.units import format_gib

BAR_CELLS = 20


def plan_lines(runtime: PipelineRuntime, *, unicode: bool = True) -> Iterator[Line]:
    """Yield processes, GPUs, replicas and decisions; `unicode` draws bars with block characters."""
    config = runtime.config
    yield (Span(config.config_cls, "bold"), Span(f"  {config.display_name}"))
    if config.plan_only is not None:
        yield line(f"plan-only: {config.plan_only}", "yellow")
    yield line()
    yield from _process_lines(runtime.process_plan.all_groups)
    yield line()
    for gpu in runtime.placement_plan.gpus.values():
        yield from _gpu_lines(runtime, gpu, unicode)
    if runtime.placement_plan.gpus:
        yield line()
    yield from _decision_lines(runtime)


def _process_lines(groups: Sequence[ProcessGroup]) -> Iterator[Line]:
    width = max(len(group.name) for group in groups)
    width = max(width, len("process"))
    yield line(f"{'process':{width}}  device  stages", "dim")
    for group in groups:
        device = "CPU" if group.gpu_id is None else f"GPU {group.gpu_id}"
        stages = ", ".join(group.stage_names)
        rank = f"  (rank {group.tp_rank} of {group.tp_size})" if group.tensor_parallel else ""
        yield (
            Span(f"{group.name:{width}}", "cyan"),
            Span(f"  {device:6}  {stages}{rank}"),
        )


def _gpu_lines(runtime: PipelineRuntime, gpu: GpuPlan, unicode: bool) -> Iterator[Line]:
    limit = runtime.config.placement.max_total_gpu_memory_fraction_per_gpu
    total = gpu.total_gpu_memory_fraction
    yield (
        Span(f"GPU {gpu.gpu_id}  ", "bold"),
        Span(_bar(total, unicode), "green" if total <= limit else "red"),
        Span(f"  {total:.2f} of {limit:.2f}"),
    )
    instances = runtime.placement_plan.by_gpu[gpu.gpu_id]
    yield line(f"       {', '.join(_budget(instance) for instance in instances)}")
    if gpu.missing_fraction_stage_names:
        missing = ", ".join(gpu.missing_fraction_stage_names)
        yield line(f"       missing gpu_memory_fraction: {missing}", "yellow")


def _bar(fraction: float, unicode: bool) -> str:
    full, empty = ("█", "░") if unicode else ("#", ".")
    # Whatever is there must show, however small.
    cells = min(BAR_CELLS, max(round(fraction * BAR_CELLS), 1 if fraction else 0))
    return full * cells + empty * (BAR_CELLS - cells)


def _budget(instance: StageInstance) -> str:
    """Return a stage with what it declared: `thinker 0.78`, `talker_ar 4.00GiB KV cache`."""
    stage = instance.config
    declared = []
    if stage.gpu_memory_fraction is not None:
        declared.append(f"{stage.gpu_memory_fraction:g}")
    if stage.total_reserve_bytes is not None:
        declared.append(format_gib(stage.total_reserve_bytes))
    if instance.kv_cache_bytes is not None:
        declared.append(f"{format_gib(instance.kv_cache_bytes)} KV cache")
    return f"{instance.name} {' + '.join(declared)}".rstrip()


def _decision_lines(runtime: PipelineRuntime) -> Iterator[Line]:
    replicas = [
        f"{process} x{len(names)}" for process, names in runtime.replica_topology.processes.items()
    ]
    mps, share, limit = runtime.mps, runtime.weight_share, runtime.max_in_flight
    yield _decision("replicas", ", ".join(replicas) or "none")
    yield _decision("MPS", _decided(mps.decision, mps.reason, "mps is off"))
    if mps.quota.limits:
        yield _decision("", f"each process: {_quota(mps.quota)}")
    for process, reason in mps.refused.items():
        yield _decision("", f"not {process}: {reason}")
    yield _decision("weight share", _decided(share.decision, share.reason, "weight_share is off"))
    yield _decision("in flight", "no limit" if limit is None else f"at most {limit} requests")


def _quota(quota: MpsQuota) -> str:
    limits = []
    if quota.active_thread_percentage is not None:
        limits.append(f"at most {quota.active_thread_percentage:g} % of the threads")
    if quota.pinned_memory is not None:
        limits.append(f"at most {format_gib(quota.pinned_memory)}")
    return ", ".join(limits)


def _decision(name: str, text: str) -> Line:
    return (Span(f"{name:12}  ", "dim"), Span(text))


def _decided(decision: str, reason: str, plain: str) -> str:
    return decision if reason == plain else f"{decision}: {reason}"
