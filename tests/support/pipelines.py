"""Builds small pipelines for tests: a chain of stages, each in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omni_config.schema import EngineStageConfig, PipelineConfig, StageConfig

FACTORY = "model.factories.create"


def stage(name: str, **settings: Any) -> StageConfig:
    """Return a stage without an engine."""
    return StageConfig(**_declared(name, settings))


def engine(name: str, **settings: Any) -> EngineStageConfig:
    """Return an engine stage."""
    return EngineStageConfig(**_declared(name, settings))


def chain(
    *stages: StageConfig, pipeline: type[PipelineConfig] = PipelineConfig, **settings: Any
) -> PipelineConfig:
    """Return a pipeline in which each stage sends to the next one and the last is terminal."""
    targets = [*(it.name for it in stages[1:]), None]
    wired = tuple(
        it.model_copy(update={"terminal": True} if target is None else {"next": (target,)})
        for it, target in zip(stages, targets, strict=True)
    )
    return pipeline(model_path="org/model", stages=wired, **settings)


def replicas(**devices: list[int] | int) -> dict[str, Mapping[str, Any]]:
    """Return `processes`: by name the device of each copy, or the number of copies on the CPU."""
    return {
        name: {"num_replicas": given}
        if isinstance(given, int)
        else {"num_replicas": len(given), "replica_devices": tuple(given)}
        for name, given in devices.items()
    }


def _declared(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    process = None if settings.get("tp_size", 1) > 1 else name
    return {"name": name, "factory_path": FACTORY, "process": process, **settings}
