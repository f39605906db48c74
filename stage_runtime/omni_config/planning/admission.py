"""How many requests a pipeline admits at once: what its engines run and queue, and no more."""

from __future__ import annotations

from collections.abc import Iterator

from omni_config.errors import Problem
from omni_config.schema import EngineStageConfig, PipelineConfig

_RUNNING, _QUEUED = "max_running_requests", "max_queued_requests"


def max_in_flight(config: PipelineConfig) -> int | None:
    """Return the admission limit, null when no engine has both numbers.

    Every request passes every engine stage, so the tightest one decides; replicas add up.
    """
    limits = [
        (running + queued) * config.replicas(stage)
        for stage in _engine_stages(config)
        for running, queued in [_limits(config, stage)]
        if running is not None and queued is not None
    ]
    return min(limits, default=None)


def admission_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Refuse a queue length that is no count: it would silently lift the limit."""
    for stage in _engine_stages(config):
        queued = _queued(stage)
        if queued is not None and (type(queued) is not int or queued < 0):
            yield Problem(
                f"stages.{stage.name}.engine.{_QUEUED}",
                f"Stage '{stage.name}': engine.{_QUEUED} must be a whole number of requests >= 0, "
                f"got {queued!r}",
            )


def admission_warnings(config: PipelineConfig) -> Iterator[str]:
    """Say where half of the two numbers was written, so that no limit results."""
    for stage in _engine_stages(config):
        running, queued = _limits(config, stage)
        if (running is None) == (queued is None):
            continue
        written, absent = (_QUEUED, _RUNNING) if running is None else (_RUNNING, _QUEUED)
        yield (
            f"Stage '{stage.name}': engine.{written} is set but engine.{absent} is not, so this "
            "stage sets no admission limit; write both to have one"
        )


def _engine_stages(config: PipelineConfig) -> Iterator[EngineStageConfig]:
    return (stage for stage in config.stages if isinstance(stage, EngineStageConfig))


def _limits(config: PipelineConfig, stage: EngineStageConfig) -> tuple[int | None, int | None]:
    running, queued = stage.engine.max_running_requests, _queued(stage)
    defaults = config.admission_defaults
    return (
        defaults.get(_RUNNING) if running is None else running,
        queued if isinstance(queued, int) else defaults.get(_QUEUED),
    )


def _queued(stage: EngineStageConfig) -> object:
    return (stage.engine.__pydantic_extra__ or {}).get(_QUEUED)
