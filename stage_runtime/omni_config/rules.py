"""Rules between the fields of a pipeline, each a function from stages to problems.

They run whenever a `PipelineConfig` is built, whoever builds it, so that a configuration object
that exists is one that is well formed. Rules about devices and budgets of the whole plan live with
planning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from omni_config.errors import Problem
from omni_config.graph import graph_problems
from omni_config.process_rules import (
    env_problems,
    group_problems,
    local_edge_problems,
    replica_problems,
    tensor_parallel_problems,
)

if TYPE_CHECKING:
    from omni_config.schema import PipelineConfig, StageConfig

PLACEMENT_FACTORY_KEYS = (
    "gpu_id",
    "total_gpu_memory_fraction",
    "process_total_gpu_memory_fraction",
)
"""Factory parameters that only placement fills, from stage.gpu and stage.gpu_memory_fraction."""

LAUNCH_FACTORY_KEYS = ("tp_rank", "tp_size", "nccl_port")
"""Factory parameters that only the launcher fills, one value per tensor-parallel rank."""

PLACEMENT_ENGINE_KEYS = {"tp_size": "tp_size", "base_gpu_id": "gpu", "gpu_id_step": "gpu"}
"""`ServerArgs` fields that would override placement, with the stage setting that owns each."""

PLACEMENT_ENV_KEYS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES")
"""Environment variables that would override placement."""


def pipeline_problems(config: PipelineConfig) -> list[Problem]:
    """Return every broken rule of one pipeline, topology first."""
    if not config.model_path.strip():
        return [Problem("model_path", "Model path is required")]
    if not config.stages:
        return [Problem("stages", f"{config.config_cls} declares no stage; at least one is needed")]
    problems = list(graph_problems(config))
    for stage in config.stages:
        problems += _placement_problems(stage)
        problems += _budget_problems(stage)
        problems += _ownership_problems(stage)
    problems += tensor_parallel_problems(config)
    problems += group_problems(config)
    if not problems:
        problems += replica_problems(config)
        problems += local_edge_problems(config)
        problems += env_problems(config)
    return problems


def _placement_problems(stage: StageConfig) -> Iterator[Problem]:
    at = f"stages.{stage.name}.gpu"
    ids = stage.gpu_ids
    if any(gpu < 0 for gpu in ids):
        yield Problem(at, f"Stage '{stage.name}': GPU ids must be >= 0")
    if stage.tp_size > 1 and not isinstance(stage.gpu, tuple):
        got = "no gpu" if stage.gpu is None else f"scalar gpu={stage.gpu}"
        yield Problem(
            at,
            f"Stage '{stage.name}': TP placement requires a list of {stage.tp_size} unique GPU "
            f"ids, got {got}",
        )
    elif stage.gpu is not None and len(ids) != stage.tp_size:
        yield Problem(
            at, f"Stage '{stage.name}': gpu has {len(ids)} entries but tp_size={stage.tp_size}"
        )
    elif len(set(ids)) != len(ids):
        yield Problem(
            at, f"Stage '{stage.name}': TP placement requires unique GPU ids, got {list(ids)}"
        )
    yield from _child_process_problems(stage)


def _child_process_problems(stage: StageConfig) -> Iterator[Problem]:
    ids = stage.runtime_gpu_ids
    if ids is None:
        return
    at = f"stages.{stage.name}.runtime_gpu_ids"
    if not stage.allow_child_processes:
        yield Problem(
            at, f"Stage '{stage.name}': runtime_gpu_ids needs allow_child_processes: true"
        )
    if stage.tp_size != 1:
        yield Problem(at, f"Stage '{stage.name}': runtime_gpu_ids needs tp_size 1")
    if not ids or len(set(ids)) != len(ids) or min(ids) < 0 or ids[0] != stage.gpu:
        yield Problem(
            at,
            f"Stage '{stage.name}': runtime_gpu_ids must be unique ids >= 0 that start with "
            f"gpu={stage.gpu}, got {list(ids)}",
        )


def _budget_problems(stage: StageConfig) -> Iterator[Problem]:
    from omni_config.schema import EngineStageConfig

    at, name = f"stages.{stage.name}", stage.name
    if stage.total_reserve_bytes is not None and stage.gpu_memory_fraction is not None:
        yield Problem(
            f"{at}.total_reserve_bytes",
            f"Stage '{name}': total_reserve_bytes and gpu_memory_fraction declare the same budget "
            "in two units; keep exactly one (set the other to null if it comes from the "
            "pipeline's built-in defaults)",
        )
    if stage.gpu is None:
        for field in ("gpu_memory_fraction", "total_reserve_bytes"):
            if getattr(stage, field) is not None:
                yield Problem(
                    f"{at}.{field}",
                    f"Stage '{name}' runs on the CPU (gpu is null), so {field} would have no "
                    "effect; set gpu, or remove the budget",
                )
    if not isinstance(stage, EngineStageConfig) or stage.engine.kv_cache_bytes is None:
        return
    engine = stage.engine
    if engine.mem_fraction_static is not None:
        yield Problem(
            f"{at}.engine.kv_cache_bytes",
            f"Stage '{name}': engine.kv_cache_bytes cannot be set together with "
            "engine.mem_fraction_static; if the fraction comes from the pipeline's built-in "
            "defaults, set mem_fraction_static: null on the same stage",
        )
    if engine.max_total_tokens is not None:
        yield Problem(
            f"{at}.engine.kv_cache_bytes",
            f"Stage '{name}': engine.kv_cache_bytes cannot be set together with "
            "engine.max_total_tokens; both pin the generation stage's KV capacity, and the lower "
            "token cap silently shrinks the byte-derived pool",
        )
    reserve, kv_bytes = stage.total_reserve_bytes, engine.kv_cache_bytes
    if reserve is not None and kv_bytes is not None and kv_bytes > reserve:
        yield Problem(
            f"{at}.engine.kv_cache_bytes",
            f"Stage '{name}': engine.kv_cache_bytes ({kv_bytes}) exceeds "
            f"total_reserve_bytes ({reserve}), which must cover it",
        )


def _ownership_problems(stage: StageConfig) -> Iterator[Problem]:
    """Refuse keys by which a setting would override what placement or the launcher decides."""
    from omni_config.schema import EngineStageConfig

    at = f"stages.{stage.name}"
    free = stage.factory.free_keys()
    for keys, owner in (
        (
            PLACEMENT_FACTORY_KEYS,
            "placement and are injected from stage.gpu and stage.gpu_memory_fraction",
        ),
        (LAUNCH_FACTORY_KEYS, "the launcher and are injected per rank from stage.tp_size"),
    ):
        written = [key for key in keys if key in free]
        if written:
            yield Problem(
                f"{at}.factory.{written[0]}",
                f"stage '{stage.name}' sets {written} under factory.*; these kwargs are owned by "
                f"{owner}",
            )
    if isinstance(stage, EngineStageConfig):
        for key in stage.engine.free_keys():
            if key in PLACEMENT_ENGINE_KEYS:
                yield Problem(
                    f"{at}.engine.{key}",
                    f"stage '{stage.name}' sets engine.{key}, which is owned by placement; write "
                    f"{at}.{PLACEMENT_ENGINE_KEYS[key]} instead",
                )
    for key in stage.env:
        if key in PLACEMENT_ENV_KEYS:
            yield Problem(
                f"{at}.env.{key}",
                f"stage '{stage.name}' sets env {key}, which is owned by placement; write "
                f"{at}.gpu instead",
            )
