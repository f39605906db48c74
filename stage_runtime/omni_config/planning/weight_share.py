"""Replicas on one card that share one copy of the weights: who loads them, who attaches.

The first replica of a process on a card leads, the others follow and start after it. Each group
meets in a directory of its own inside the run directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from omni_config.errors import Problem
from omni_config.planning.draft import PlanDraft
from omni_config.planning.processes import ProcessGroup
from omni_config.schema import EngineStageConfig, StageConfig
from omni_config.settings import WeightShareMode

SHARE_VARIABLE = "OMNI_WEIGHT_SHARE"
RUN_ID_VARIABLE = "OMNI_WEIGHT_SHARE_RUN_ID"
COMPATIBLE_VARIABLE = "OMNI_WEIGHT_SHARE_COMPAT"
TIMEOUT_VARIABLE = "OMNI_WEIGHT_SHARE_TIMEOUT_S"
_TOKEN_CAP = "max_total_tokens"


@dataclass(frozen=True, slots=True)
class WeightShareGroup:
    """Replicas of one process on one card.

    Attributes:
        leader: process that loads the weights.
        followers: processes that attach; they start after the leader and stop before it.
        store: directory in which they meet, inside the run directory.
    """

    process: str
    gpu_id: int
    leader: str
    followers: tuple[str, ...]
    store: str


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
        for (process, gpu_id), copies in _copies_by_card(draft).items()
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
            f"GPU {share.gpu_id}: {share.leader} loads for {', '.join(share.followers)}"
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
    processes = list(dict.fromkeys(process for process, _ in _copies_by_card(draft)))
    if not processes:
        yield Problem(
            "weight_share",
            "weight_share=on but no logical Process places two or more replicas on one GPU; "
            "declare processes.<name>.num_replicas with repeated replica_devices entries, or use "
            "weight_share=off",
        )
        return
    yield from _architecture_problems(draft)
    for process in processes:
        yield from _member_problems(draft, process)


def _copies_by_card(draft: PlanDraft) -> dict[tuple[str, int], list[ProcessGroup]]:
    """Gather replicas by process and card, cards in order; a lone replica shares nothing."""
    found: dict[str, dict[int, list[ProcessGroup]]] = {}
    for group in draft.processes.groups:
        if group.replica_count > 1 and group.gpu_id is not None:
            found.setdefault(group.process, {}).setdefault(group.gpu_id, []).append(group)
    return {
        (process, gpu_id): cards[gpu_id]
        for process, cards in found.items()
        for gpu_id in sorted(cards)
        if len(cards[gpu_id]) > 1
    }


def _share_group(
    process: str, gpu_id: int, copies: list[ProcessGroup], run_directory: str
) -> WeightShareGroup:
    # A process name is a plain file name (a rule of the schema), so the store stays in the run.
    store = f"{run_directory}/weights/{process}/gpu{gpu_id}"
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
    engines = [stage for stage in members if isinstance(stage, EngineStageConfig)]
    if len(engines) != 1:
        held = ", ".join(engine.name for engine in engines) or "none"
        yield Problem(
            "weight_share",
            f"weight sharing needs exactly one engine stage in replicated process '{process}', "
            f"which holds {held}",
        )
        return
    yield from _token_cap_problems(draft, engines[0])


def _token_cap_problems(draft: PlanDraft, engine: EngineStageConfig) -> Iterator[Problem]:
    cap = _token_cap(draft, engine)
    at = f"stages.{engine.name}.engine.{_TOKEN_CAP}"
    if cap is None:
        yield Problem(
            at,
            f"weight sharing requires an explicit {_TOKEN_CAP} on engine stage '{engine.name}' "
            f"(set {at}): a follower attaches after its dummy weights are freed, so memory "
            "profiling cannot derive a stable KV budget",
        )
    elif type(cap) is not int or cap < 1:
        yield Problem(
            at,
            f"stage '{engine.name}' must define a positive integer {_TOKEN_CAP} for weight "
            f"sharing, got {cap!r}",
        )


def _token_cap(draft: PlanDraft, engine: EngineStageConfig) -> object:
    if engine.engine.max_total_tokens is not None:
        return engine.engine.max_total_tokens
    for channel in (_free_factory(engine), draft.author_kwargs[engine.name]):
        overrides = channel.get("server_args_overrides")
        if isinstance(overrides, Mapping) and overrides.get(_TOKEN_CAP) is not None:
            return overrides[_TOKEN_CAP]
    return None


def _free_factory(stage: StageConfig) -> Mapping[str, object]:
    return stage.factory.free_keys()
