"""Replicas on one device that share one copy of the weights: who loads them, who attaches.

The first replica of a process on a device leads, the others follow and start after it. Each group
meets in a directory of its own inside the run directory. A device is a card, or the main memory of
the machine for a process without one that holds an engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from omni_config.errors import Problem
from omni_config.planning.draft import PlanDraft
from omni_config.planning.processes import ProcessGroup
from omni_config.schema import EngineStageConfig
from omni_config.settings import WeightShareMode

SHARE_VARIABLE = "OMNI_WEIGHT_SHARE"
RUN_ID_VARIABLE = "OMNI_WEIGHT_SHARE_RUN_ID"
COMPATIBLE_VARIABLE = "OMNI_WEIGHT_SHARE_COMPAT"
TIMEOUT_VARIABLE = "OMNI_WEIGHT_SHARE_TIMEOUT_S"
_TOKEN_CAP = "max_total_tokens"
_OVERRIDES = "server_args_overrides"
_CPU = None

_CHANGES_WEIGHTS: Mapping[str, str] = {
    "quantization": "post-processing of quantized weights leaves more behind than tensors",
    "cpu_offload_gb": "weights that move between host and GPU are not in one place",
    "offload_group_size": "weights that move between host and GPU are not in one place",
    "enable_memory_saver": "a leader that releases its weights takes them from its followers",
    "enable_weights_cpu_backup": "a leader that releases its weights takes them from its followers",
    "enable_eplb": "balancing experts writes to them while requests run",
    "speculative_algorithm": "a draft model would be taken for the model",
    "weight_cache_mode": "SGLang's own weight cache loads in another process",
}
"""Settings of an engine with which its weights are not what one process loads and all read."""


@dataclass(frozen=True, slots=True)
class WeightShareGroup:
    """Replicas of one process on one device.

    Attributes:
        gpu_id: the card; null for main memory.
        leader: process that loads the weights.
        followers: processes that attach; they start after the leader and stop before it.
        store: directory in which they meet, inside the run directory.
    """

    process: str
    gpu_id: int | None
    leader: str
    followers: tuple[str, ...]
    store: str

    @property
    def device(self) -> str:
        """The device, for people."""
        return "CPU" if self.gpu_id is None else f"GPU {self.gpu_id}"


@dataclass(frozen=True, slots=True)
class WeightShareDecision:
    """The decision for a pipeline, with the variables of every process."""

    mode: WeightShareMode
    decision: Literal["off", "on"]
    reason: str
    groups: tuple[WeightShareGroup, ...] = ()
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def starts_last(self) -> tuple[str, ...]:
        """Processes of the second wave: every follower."""
        return tuple(follower for group in self.groups for follower in group.followers)


def decide_weight_share(draft: PlanDraft, run_directory: str, run_id: str) -> WeightShareDecision:
    """Return the decision; it is void when `weight_share_problems` finds any."""
    mode = draft.config.weight_share
    if mode == "off":
        return WeightShareDecision(mode, "off", "weight_share is off")
    groups = tuple(
        _share_group(process, gpu_id, copies, run_directory)
        for (process, gpu_id), copies in _copies_by_device(draft).items()
    )
    environment = {group.name: {COMPATIBLE_VARIABLE: "1"} for group in draft.processes.all_groups}
    for share in groups:
        environment[share.leader] |= _role("leader", share, run_id)
        for follower in share.followers:
            environment[follower] |= _role("follower", share, run_id)
    return WeightShareDecision(
        mode=mode,
        decision="on",
        reason="; ".join(
            f"{share.device}: {share.leader} loads for {', '.join(share.followers)}"
            for share in groups
        ),
        groups=groups,
        environment=environment,
    )


def weight_share_problems(draft: PlanDraft) -> Iterator[Problem]:
    """Refuse what cannot share weights, before anything is loaded."""
    if draft.config.weight_share == "off":
        return
    inherited = (draft.environ or {}).get(SHARE_VARIABLE)
    if inherited is not None:
        yield Problem(
            "weight_share",
            f"weight_share=on but the parent environment already sets {SHARE_VARIABLE}="
            f"{inherited!r}; the runtime assigns roles itself, so unset it or use weight_share=off "
            "with the external supervisor",
        )
    processes = list(dict.fromkeys(process for process, _ in _copies_by_device(draft)))
    if not processes:
        yield Problem(
            "weight_share",
            "weight_share=on but no logical Process places two or more replicas on one GPU, or "
            "two or more replicas of an engine on the CPU; declare processes.<name>.num_replicas "
            "with repeated replica_devices entries, or use weight_share=off",
        )
        return
    yield from _architecture_problems(draft)
    for process in processes:
        yield from _member_problems(draft, process)


def _copies_by_device(draft: PlanDraft) -> dict[tuple[str, int | None], list[ProcessGroup]]:
    """Gather replicas by process and device, cards in order; a lone replica shares nothing."""
    found: dict[str, dict[int | None, list[ProcessGroup]]] = {}
    for group in draft.processes.groups:
        # Without a card and without an engine there are no weights to speak of.
        loads = group.gpu_id is not None or bool(_engines(draft, group.process))
        if group.replica_count > 1 and loads:
            found.setdefault(group.process, {}).setdefault(group.gpu_id, []).append(group)
    return {
        (process, gpu_id): devices[gpu_id]
        for process, devices in found.items()
        for gpu_id in sorted(devices, key=lambda each: (each is _CPU, each))
        if len(devices[gpu_id]) > 1
    }


def _engines(draft: PlanDraft, process: str) -> list[EngineStageConfig]:
    members = (stage for stage in draft.config.stages if stage.process_name == process)
    return [stage for stage in members if isinstance(stage, EngineStageConfig)]


def _share_group(
    process: str, gpu_id: int | None, copies: list[ProcessGroup], run_directory: str
) -> WeightShareGroup:
    # A process name is a plain file name (a rule of the schema), so the store stays in the run.
    device = "cpu" if gpu_id is None else f"gpu{gpu_id}"
    store = f"{run_directory}/weights/{process}/{device}"
    names = [group.name for group in copies]
    return WeightShareGroup(process, gpu_id, names[0], tuple(names[1:]), store)


def _role(role: str, share: WeightShareGroup, run_id: str) -> dict[str, str]:
    return {SHARE_VARIABLE: f"{role}:{share.store}", RUN_ID_VARIABLE: run_id}


def _architecture_problems(draft: PlanDraft) -> Iterator[Problem]:
    audited = draft.config.weight_share_architectures
    unknown = [name for name in draft.config.architectures if name not in audited]
    if audited and unknown:
        yield Problem(
            "weight_share",
            f"weight sharing is unsupported for architecture {', '.join(map(repr, unknown))}; "
            f"audited architectures: {', '.join(audited)}. A model that writes per-request state "
            "in place into a shared parameter would corrupt the other replicas",
        )


def _member_problems(draft: PlanDraft, process: str) -> Iterator[Problem]:
    members = [stage for stage in draft.config.stages if stage.process_name == process]
    for stage in members:
        if SHARE_VARIABLE in stage.env:
            yield Problem(
                f"stages.{stage.name}.env.{SHARE_VARIABLE}",
                f"stage '{stage.name}' sets {SHARE_VARIABLE} in its environment defaults; the "
                "runtime assigns weight-share roles itself, so remove it",
            )
    engines = _engines(draft, process)
    if len(engines) != 1:
        held = ", ".join(engine.name for engine in engines) or "none"
        yield Problem(
            "weight_share",
            f"weight sharing needs exactly one engine stage in replicated process '{process}', "
            f"which holds {held}",
        )
        return
    yield from _token_cap_problems(draft, engines[0])
    yield from _setting_problems(draft, engines[0])


def _setting_problems(draft: PlanDraft, engine: EngineStageConfig) -> Iterator[Problem]:
    for key, reason in _CHANGES_WEIGHTS.items():
        value = _engine_setting(draft, engine, key)
        if value not in (None, False, 0, "", "off"):
            at = f"stages.{engine.name}.engine.{key}"
            yield Problem(
                at,
                f"stage '{engine.name}' has {key}={value!r}, and shares its weights: {reason}; "
                f"remove {at}, or use weight_share=off",
            )


def _token_cap_problems(draft: PlanDraft, engine: EngineStageConfig) -> Iterator[Problem]:
    cap = _engine_setting(draft, engine, _TOKEN_CAP)
    at = f"stages.{engine.name}.engine.{_TOKEN_CAP}"
    if cap is None:
        yield Problem(
            at,
            f"weight sharing requires an explicit {_TOKEN_CAP} on engine stage '{engine.name}' "
            f"(set {at}): copies that start after each other on one device would each measure "
            "other memory, so profiling cannot derive a stable KV budget",
        )
    elif type(cap) is not int or cap < 1:
        yield Problem(
            at,
            f"stage '{engine.name}' must define a positive integer {_TOKEN_CAP} for weight "
            f"sharing, got {cap!r}",
        )


def _engine_setting(draft: PlanDraft, engine: EngineStageConfig, key: str) -> object:
    """Return what an engine is started with, null when nobody wrote it."""
    written = engine.engine.written().get(key)
    if written is not None:
        return written
    for channel in (engine.factory.free_keys(), draft.author_kwargs[engine.name]):
        overrides = channel.get(_OVERRIDES)
        if isinstance(overrides, Mapping) and overrides.get(key) is not None:
            value: object = overrides[key]
            return value
    return None
