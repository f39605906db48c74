"""The environment a worker process starts with.

Weakest first: the model's floor, what the model wants for a stage, `env_defaults`, the stage's
`env`. All of these are defaults: a variable that the launcher's own environment sets stays, and
whoever wrote another value is told. What placement decides (visible devices, MPS, weight sharing)
comes on top and is no default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from omni_config.errors import PlanError, Problem
from omni_config.planning.visibility import VISIBLE_DEVICES, visible_device, visible_entries
from omni_config.schema import CPU_COUNT, PipelineConfig, StageConfig

THREADS_VARIABLE = "OMP_NUM_THREADS"
_PRELOAD = "LD_PRELOAD"
_PRELOAD_SEPARATOR = re.compile(r"[:\s]+")
_NVLS = "NCCL_NVLS_ENABLE"


@dataclass(frozen=True, slots=True)
class Host:
    """Where processes are started.

    Attributes:
        environ: environment of the launcher.
        usable_cpus: CPUs that affinity and cgroup leave to it, null when unknown.
    """

    environ: Mapping[str, str] = field(default_factory=dict)
    usable_cpus: int | None = None


def worker_environment(
    config: PipelineConfig, stages: Sequence[StageConfig], host: Host, process_count: int
) -> dict[str, str]:
    """Return the variables by which a process's environment differs from the launcher's.

    Args:
        stages: the stages of the process, in construction order.
        process_count: processes of the pipeline; each gets an equal share of the CPUs.
    """
    wanted = _defaults(config, stages)
    if THREADS_VARIABLE not in wanted and host.usable_cpus is not None:
        wanted[THREADS_VARIABLE] = str(max(1, host.usable_cpus // max(1, process_count)))
    changed = {
        key: value.replace(CPU_COUNT, str(host.usable_cpus or 1))
        for key, value in wanted.items()
        if key not in host.environ
    }
    preload = _joined_preload(config, stages, host.environ)
    if preload and preload != host.environ.get(_PRELOAD):
        changed[_PRELOAD] = preload
    return changed


def rank_environment(stage: StageConfig, gpu_id: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a tensor-parallel rank needs on top: it sees its own card and no other.

    Raises:
        PlanError: the launcher itself does not see the card.
    """
    if stage.tp_size == 1:
        return {}
    try:
        device = visible_device(gpu_id, environ)
    except IndexError:
        message = (
            f"TP stage '{stage.name}' assigned gpu_id={gpu_id}, but {VISIBLE_DEVICES} only exposes "
            f"{list(visible_entries(environ) or ())}"
        )
        raise PlanError([Problem(f"stages.{stage.name}.gpu", message)]) from None
    variables = {
        VISIBLE_DEVICES: device,
        "SGLANG_ONE_VISIBLE_DEVICE_PER_PROCESS": "true",
        # Spelt as SGLang spells it. Ranks on cards of unequal load are placement's decision.
        "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "false",
    }
    if _NVLS not in environ and _NVLS not in stage.env:
        variables[_NVLS] = "0"
    return variables


def children_environment(gpu_ids: Sequence[int], environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a process needs whose own children use several cards: it sees just these."""
    if not gpu_ids:
        return {}
    return {VISIBLE_DEVICES: ",".join(visible_device(gpu_id, environ) for gpu_id in gpu_ids)}


def shell_notes(config: PipelineConfig, environ: Mapping[str, str]) -> Iterator[str]:
    """Say which written values have no effect because the launcher's environment sets another."""
    written = [(f"env_defaults.{key}", key, value) for key, value in config.env_defaults.items()]
    for stage in config.stages:
        for key, value in stage.env.items():
            written.append((f"stages.{stage.name}.env.{key}", key, value))
    for path, key, value in written:
        if key != _PRELOAD and environ.get(key, value) != value:
            yield (
                f"{path}={value!r} has no effect: the environment already sets "
                f"{key}={environ[key]!r}, which wins"
            )


def _defaults(config: PipelineConfig, stages: Sequence[StageConfig]) -> dict[str, str]:
    wanted = dict(config.env_floor)
    for stage in reversed(stages):
        wanted |= config.stage_env(stage)
    wanted |= config.env_defaults
    for stage in reversed(stages):
        wanted |= stage.env
    wanted.pop(_PRELOAD, None)
    return wanted


def _joined_preload(
    config: PipelineConfig, stages: Sequence[StageConfig], environ: Mapping[str, str]
) -> str:
    """Join libraries without duplicates, the stages' first: each one that is wanted must load."""
    layers = [stage.env for stage in stages]
    layers += [config.stage_env(stage) for stage in stages]
    texts = [layer.get(_PRELOAD, "") for layer in (*layers, config.env_defaults, config.env_floor)]
    if not any(texts):
        return ""
    libraries = _PRELOAD_SEPARATOR.split(" ".join([*texts, environ.get(_PRELOAD, "")]))
    return ":".join(dict.fromkeys(library for library in libraries if library))
