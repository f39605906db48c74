"""Rules of process groups: names, tensor-parallel ranks, replicas and what one process can hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from omni_config.errors import Problem
from omni_config.graph import INSTANCE_SUFFIX
from omni_config.suggestions import nearest

if TYPE_CHECKING:
    from omni_config.schema import PipelineConfig, StageConfig

_PROCESS_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def tensor_parallel_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield every stage that is tensor parallel although its factory knows no ranks."""
    from omni_config.schema import EngineStageConfig

    able = config.tensor_parallel_stages or tuple(
        stage.name for stage in config.stages if isinstance(stage, EngineStageConfig)
    )
    for stage in config.stages:
        if stage.tp_size > 1 and stage.name not in able:
            yield Problem(
                f"stages.{stage.name}.tp_size",
                f"Stage '{stage.name}' has tp_size={stage.tp_size}, but its factory knows no "
                f"ranks; stages that can be tensor parallel: {list(able)}",
            )


def group_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield stages without a group, bad group names, and groups that cannot hold their stages."""
    missing = [s.name for s in config.stages if s.tp_size == 1 and s.process is None]
    if missing:
        yield Problem(
            f"stages.{missing[0]}.process",
            f"Non-TP stages must declare process; missing process for {missing}",
        )
    for stage in config.stages:
        yield from _process_name_problems(stage)
    for name, stages in stages_by_process(config).items():
        parallel = [stage.name for stage in stages if stage.tp_size > 1]
        others = [stage.name for stage in stages if stage.tp_size == 1]
        if len(parallel) > 1:
            yield Problem(
                f"stages.{parallel[1]}.process",
                f"Process name '{name}' is claimed by multiple TP stages: {parallel}",
            )
        elif parallel and others:
            yield Problem(
                f"stages.{parallel[0]}.process",
                f"Process '{name}' holds TP stage '{parallel[0]}' and cannot be shared with "
                f"{others}",
            )
    known = stages_by_process(config)
    for name in config.processes:
        if name not in known:
            yield Problem(
                f"processes.{name}",
                f"processes names unknown process '{name}'; this pipeline has: {', '.join(known)}",
                suggestions=nearest(name, known),
            )


def _process_name_problems(stage: StageConfig) -> Iterator[Problem]:
    name, at = stage.process, f"stages.{stage.name}.process"
    if name is None:
        return
    if not name:
        yield Problem(at, f"Stage '{stage.name}' process must not be empty")
    elif INSTANCE_SUFFIX.search(name):
        yield Problem(
            at, f"Process name '{name}' uses the '@r<N>' suffix reserved for replica instances"
        )
    elif not _PROCESS_NAME.fullmatch(name):
        yield Problem(
            at,
            f"Process name '{name}' must be letters, digits, '.', '_' or '-', and begin and end "
            "with a letter or digit: it names files and pods",
        )


def replica_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield every replicated group whose devices do not fit its copies."""
    for name, stages in stages_by_process(config).items():
        policy = config.processes.get(name)
        if policy is None:
            continue
        at = f"processes.{name}.replica_devices"
        on_gpu = [stage for stage in stages if stage.gpu is not None]
        devices = policy.replica_devices
        size = max((stage.tp_size for stage in stages), default=1)
        wanted = policy.num_replicas * size
        if not on_gpu:
            if devices is not None:
                yield Problem(
                    at, f"Process '{name}' has no GPU stage and must not declare replica_devices"
                )
        elif devices is None:
            if policy.num_replicas > 1:
                yield Problem(
                    f"processes.{name}.num_replicas",
                    f"Process '{name}': num_replicas={policy.num_replicas} on a process with GPU "
                    f"stage(s) requires replica_devices with {wanted} device id(s)",
                )
        elif len(devices) != wanted:
            yield Problem(
                at,
                f"Process '{name}': replica_devices has {len(devices)} id(s); expected {wanted} "
                f"(num_replicas={policy.num_replicas} x tp_size={size})",
            )
        else:
            yield from _duplicate_device_problems(name, devices, size)


def _duplicate_device_problems(name: str, devices: tuple[int, ...], size: int) -> Iterator[Problem]:
    for replica, start in enumerate(range(0, len(devices), size)):
        ids = list(devices[start : start + size])
        if len(set(ids)) != len(ids):
            yield Problem(
                f"processes.{name}.replica_devices",
                f"Process '{name}': replica_devices for replica {replica} must contain unique GPU "
                f"ids, got {ids}",
            )


def local_edge_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield every edge that must stay inside one process and does not."""
    for source, target in config.local_edges:
        pair = config.by_name[source], config.by_name[target]
        if pair[0].process_name != pair[1].process_name:
            yield Problem(
                f"stages.{target}.process",
                f"Edge '{source}' -> '{target}' passes objects that cannot leave a process, but "
                f"'{source}' is in process '{pair[0].process_name}' and '{target}' in "
                f"'{pair[1].process_name}'; give both the same process",
            )


def env_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Refuse two values for one variable in one process: only one of them could hold."""
    for name, stages in stages_by_process(config).items():
        seen: dict[str, StageConfig] = {}
        for stage in stages:
            for key, value in stage.env.items():
                other = seen.setdefault(key, stage)
                if other.env[key] != value and key != "LD_PRELOAD":
                    yield Problem(
                        f"stages.{stage.name}.env.{key}",
                        f"Process '{name}' has conflicting env default for '{key}': "
                        f"'{value}' (stage '{stage.name}') != '{other.env[key]}' "
                        f"(stage '{other.name}')",
                    )


def stages_by_process(config: PipelineConfig) -> dict[str, list[StageConfig]]:
    """Return the stages of each process group, groups in order of first appearance."""
    groups: dict[str, list[StageConfig]] = {}
    for stage in config.stages:
        groups.setdefault(stage.process_name, []).append(stage)
    return groups
