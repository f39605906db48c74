"""What a stage's factory is called with: three sources, merged by one rule.

The model's author proposes values that follow from the layout, the configuration overrides them key
by key, and placement fills the parameters it owns last. Placement's parameters cannot be written by
either of the other two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omni_config.consumer_keys import unknown_factory_keys
from omni_config.errors import Problem
from omni_config.planning.placement import PlacementPlan
from omni_config.rules import LAUNCH_FACTORY_KEYS, PLACEMENT_ENGINE_KEYS, PLACEMENT_FACTORY_KEYS
from omni_config.schema import EngineStageConfig, PipelineConfig, StageConfig
from omni_config.suggestions import nearest
from omni_config.vocabulary import FactorySignature, engine_keys, server_args_version

OVERRIDES = "server_args_overrides"
_KV_CACHE_BYTES = "kv_cache_bytes"
_CUDA_DEVICE = re.compile(r"cuda(?::([0-9]+))?")


@dataclass(frozen=True, slots=True)
class Injection:
    """What placement and the launcher know about one construction.

    Attributes:
        gpu_id: device as the process sees it, null on the CPU.
        process_fraction: fractions of this stage and of those built before it in its process.
        nccl_port: port of the ranks' group, null when the stage is not tensor parallel.
    """

    gpu_id: int | None
    process_fraction: float | None = None
    tp_rank: int = 0
    nccl_port: int | None = None


def factory_kwargs(
    config: PipelineConfig, stage: StageConfig, signature: FactorySignature, injection: Injection
) -> dict[str, object]:
    """Return the keyword arguments of a stage's factory.

    Args:
        signature: what the factory declares; placement's values go only to declared parameters.
    """
    kwargs = _merged(config.stage_factory_kwargs(stage), _config_channel(config, stage))
    for key, value in _owned_values(config, stage, injection).items():
        if key in signature.parameters and key not in kwargs:
            kwargs[key] = value
    return kwargs


def factory_problems(
    config: PipelineConfig, stage: StageConfig, signature: FactorySignature
) -> Iterator[Problem]:
    """Refuse what the factory would refuse, and values that would never reach it."""
    at, author = f"stages.{stage.name}", config.stage_factory_kwargs(stage)
    yield from unknown_factory_keys(stage, signature, config.refused_factory_keys)
    for key in author:
        if not signature.accepts(key):
            yield Problem(
                at,
                f"stage_factory_kwargs('{stage.name}') returns '{key}', but factory "
                f"{signature.path} does not accept it",
            )
    if _engine_overrides(config, stage) and not signature.accepts(OVERRIDES):
        yield Problem(
            f"{at}.engine",
            f"Stage '{stage.name}' sets engine but factory {signature.path} does not accept a "
            f"'{OVERRIDES}' parameter",
        )
    if stage.gpu is not None and not signature.accepts("gpu_id"):
        yield _unplaceable(config, stage, signature)
    if stage.tp_size > 1 and not signature.accepts("tp_rank"):
        yield Problem(
            f"{at}.tp_size",
            f"Stage '{stage.name}' has tp_size={stage.tp_size}, but factory {signature.path} has "
            "no tp_rank parameter, so it knows no ranks",
        )


def author_problems(config: PipelineConfig, stage: StageConfig) -> Iterator[Problem]:
    """Refuse an author channel that writes what placement or the launcher owns."""
    author = config.stage_factory_kwargs(stage)
    for keys, owner in (
        (
            PLACEMENT_FACTORY_KEYS,
            "placement and are injected from stage.gpu_memory_fraction and stage.gpu",
        ),
        (LAUNCH_FACTORY_KEYS, "the launcher and are injected per rank from stage.tp_size"),
    ):
        owned = [key for key in keys if key in author]
        if owned:
            yield Problem(
                f"stages.{stage.name}",
                f"stage_factory_kwargs('{stage.name}') returns {owned}; these kwargs are owned by "
                f"{owner}",
            )


def override_problems(stage: StageConfig) -> Iterator[Problem]:
    """Hold engine keys that were written under `factory` to the rules of `engine`."""
    written = stage.factory.free_keys().get(OVERRIDES)
    if not isinstance(written, Mapping):
        return
    known = engine_keys() - {_KV_CACHE_BYTES}
    for key in written:
        at = f"stages.{stage.name}.factory.{OVERRIDES}.{key}"
        if key in PLACEMENT_ENGINE_KEYS:
            yield Problem(
                at,
                f"stage '{stage.name}' sets {key} under factory.{OVERRIDES}, which is owned by "
                f"placement; write stages.{stage.name}.{PLACEMENT_ENGINE_KEYS[key]} instead",
            )
        elif key not in known:
            yield Problem(
                at,
                f"{at}: SGLang {server_args_version()} has no server argument '{key}'",
                suggestions=tuple(f"{stage.name}.engine.{name}" for name in nearest(key, known)),
            )


def device_text_problems(config: PipelineConfig, plan: PlacementPlan) -> Iterator[Problem]:
    """Refuse a `factory.device` that contradicts placement."""
    for stage in config.stages:
        match = _CUDA_DEVICE.fullmatch(stage.factory.device or "")
        if match is None:
            continue
        gpu_ids = sorted({gpu_id for it in plan.by_stage[stage.name] for gpu_id in it.gpu_ids})
        # In a process that sees one card, cuda:0 is that card, whatever its id.
        if gpu_ids and (match[1] is None or int(match[1]) in (0, *gpu_ids)):
            continue
        placed = f"GPU(s) {gpu_ids}" if gpu_ids else "the CPU"
        yield Problem(
            f"stages.{stage.name}.factory.device",
            f"Stage '{stage.name}': factory.device {stage.factory.device!r} contradicts placement, "
            f"which puts the stage on {placed}; write stages.{stage.name}.gpu instead",
        )


def _merged(author: Mapping[str, object], written: Mapping[str, object]) -> dict[str, object]:
    kwargs = {**author, **written}
    theirs, ours = author.get(OVERRIDES), written.get(OVERRIDES)
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        kwargs[OVERRIDES] = {**theirs, **ours}
    return kwargs


def _config_channel(config: PipelineConfig, stage: StageConfig) -> dict[str, object]:
    kwargs = stage.factory.written()
    engine = _engine_overrides(config, stage)
    if engine:
        spelled = kwargs.get(OVERRIDES)
        kwargs[OVERRIDES] = {**spelled, **engine} if isinstance(spelled, Mapping) else engine
    return kwargs


def _engine_overrides(config: PipelineConfig, stage: StageConfig) -> dict[str, object]:
    """Return what reaches `ServerArgs`: derived keys under written ones, never the KV bytes."""
    if not isinstance(stage, EngineStageConfig):
        return {}
    keys = config.derived_engine(stage) | stage.engine.written()
    keys.pop(_KV_CACHE_BYTES, None)
    return keys


def _owned_values(
    config: PipelineConfig, stage: StageConfig, injection: Injection
) -> dict[str, object]:
    values: dict[str, object] = {"model_path": config.model_path, "gpu_id": injection.gpu_id}
    if stage.gpu_memory_fraction is not None:
        values["total_gpu_memory_fraction"] = stage.gpu_memory_fraction
    if injection.process_fraction is not None:
        values["process_total_gpu_memory_fraction"] = injection.process_fraction
    if stage.tp_size > 1:
        values |= {
            "tp_rank": injection.tp_rank,
            "tp_size": stage.tp_size,
            "nccl_port": injection.nccl_port,
        }
    return values


def _unplaceable(
    config: PipelineConfig, stage: StageConfig, signature: FactorySignature
) -> Problem:
    policy = config.processes.get(stage.process_name)
    if policy is not None and policy.replica_devices is not None:
        return Problem(
            f"processes.{stage.process_name}.replica_devices",
            f"Stage '{stage.name}' uses processes.replica_devices, but factory '{signature.path}' "
            "does not declare a gpu_id parameter",
        )
    return Problem(
        f"stages.{stage.name}.gpu",
        f"Stage '{stage.name}': {signature.path} is placed on a GPU but its signature has no "
        "gpu_id parameter, so placement can never reach it",
    )
