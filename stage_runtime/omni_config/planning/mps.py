"""Whether processes that share a GPU do so through NVIDIA MPS: decided per card, with the reason.

`auto` uses MPS where at least two processes share a card that supports it. `on` means every card
with a process that can attach, and refuses the plan when one of them cannot: a card that is
silently left out would run its processes one at a time while its owner believes otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from omni_config.errors import Problem
from omni_config.planning.draft import PlanDraft
from omni_config.planning.mps_clients import (
    SharedCard,
    client_obstacle,
    device_obstacle,
    ordinal_obstacle,
    shared_cards,
    unresolved_gpus,
)
from omni_config.planning.visibility import VISIBLE_DEVICES, visible_device
from omni_config.planning.weight_share import SHARE_VARIABLE
from omni_config.settings import MpsMode, MpsQuota
from omni_config.units import format_gib

STATE_ROOT_VARIABLE = "OMNI_MPS_STATE_ROOT"
CLIENT_TOKEN_VARIABLE = "OMNI_MPS_CLIENT_TOKEN"
_PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
_STAGE_OVERRIDES = (VISIBLE_DEVICES, "CUDA_DEVICE_ORDER", _PIPE_VARIABLE, SHARE_VARIABLE)
_CONTROL = "nvidia-cuda-mps-control"
_NO_CLIENT = "no process is eligible for MPS (TP and CPU-only processes cannot attach)"
_MAX_SOCKET_PATH_BYTES = 107
_CONTROL_SOCKET = "/pipe/control"


@dataclass(frozen=True, slots=True)
class MpsCard:
    """The decision for one physical card.

    Attributes:
        card: UUID, or `gpu<id>` while the device behind a GPU id is not known.
        gpu_ids: GPU ids that are this card.
        clients: processes on it that can attach.
        reason: why it is used or not.
    """

    card: str
    gpu_ids: tuple[int, ...]
    clients: tuple[str, ...]
    enabled: bool
    reason: str


@dataclass(frozen=True, slots=True)
class MpsDecision:
    """The decision for a pipeline.

    Attributes:
        cards: every card with a process that could attach.
        refused: processes that cannot attach, each with the reason.
        environment: variables of each client, by process.
        quota: limits of every client.
    """

    mode: MpsMode
    decision: Literal["off", "on"]
    reason: str
    cards: tuple[MpsCard, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    quota: MpsQuota = field(default_factory=MpsQuota)

    @property
    def enabled_cards(self) -> tuple[MpsCard, ...]:
        """The cards that get a control daemon."""
        return tuple(card for card in self.cards if card.enabled)


def decide_mps(draft: PlanDraft, run_id: str) -> MpsDecision:
    """Return the decision; it is void when `mps_problems` finds any.

    Args:
        run_id: makes the token of a client its own.
    """
    mode = draft.config.mps
    if mode == "off":
        return MpsDecision(mode, "off", "mps is off")
    refused = {
        group.name: obstacle
        for group in draft.processes.all_groups
        if (obstacle := client_obstacle(group))
    }
    if draft.devices.has_mps_control is False:
        return _without(mode, refused, f"{_CONTROL} not found")
    unresolved = unresolved_gpus(draft)
    if unresolved:
        return _without(mode, refused, f"physical GPU mapping is incomplete ({unresolved})")
    judged = [(card, _judge(draft, card)) for card in shared_cards(draft)]
    used = [card for card, decision in judged if decision.enabled]
    return MpsDecision(
        mode=mode,
        decision="on" if used else "off",
        reason="; ".join(f"{card.shown}: {decision.reason}" for card, decision in judged)
        or _NO_CLIENT,
        cards=tuple(decision for _, decision in judged),
        refused=refused,
        environment=_environment(draft, used, run_id),
        warnings=tuple(
            f"MPS ({mode}): skipping {card.shown}: {decision.reason}"
            for card, decision in judged
            if _obstacle(draft, card)
        ),
        quota=draft.config.mps_quota,
    )


def mps_problems(draft: PlanDraft) -> Iterator[Problem]:
    """Refuse what MPS cannot serve, and with `on` every card it cannot serve."""
    if draft.config.mps == "off":
        if draft.config.mps_quota.limits:
            yield Problem("mps_quota", "limits nothing while mps is off; use mps: auto or on")
        return
    yield from _quota_problems(draft)
    yield from _override_problems(draft)
    yield from _inherited_problems(draft)
    yield from _path_problems(draft)
    if draft.config.mps == "on":
        yield from _on_problems(draft)


def state_root(environ: Mapping[str, str]) -> str:
    """Return the directory that holds the state of all MPS daemons of a user."""
    written = environ.get(STATE_ROOT_VARIABLE)
    if written:
        return written.rstrip("/")
    temporary = environ.get("TMPDIR", "/tmp").rstrip("/")
    return f"{temporary}/omnipipe-mps-{environ.get('USER') or environ.get('LOGNAME') or 'user'}"


def _without(mode: MpsMode, refused: Mapping[str, str], why: str) -> MpsDecision:
    warning = f"MPS {mode}: {why}; running without MPS"
    return MpsDecision(mode, "off", why, refused=refused, warnings=(warning,))


def _judge(draft: PlanDraft, card: SharedCard) -> MpsCard:
    enabled, reason = _verdict(draft, card)
    clients = tuple(group.name for group in card.groups)
    return MpsCard(card.card, card.gpu_ids, clients, enabled, reason)


def _verdict(draft: PlanDraft, card: SharedCard) -> tuple[bool, str]:
    obstacle = _obstacle(draft, card)
    if obstacle:
        return False, obstacle
    count = len(card.groups)
    processes = "1 process" if count == 1 else f"{count} processes"
    unsure = "" if draft.devices.devices else "; the device is not known yet"
    if draft.config.mps == "on":
        return True, f"mps is on and {processes} can attach{unsure}"
    if count < 2:
        return False, "one process uses the card, so there is nothing to share"
    return True, f"{processes} share the card{unsure}"


def _obstacle(draft: PlanDraft, card: SharedCard) -> str | None:
    return device_obstacle(draft, card) or ordinal_obstacle(draft, card)


def _environment(
    draft: PlanDraft, cards: list[SharedCard], run_id: str
) -> dict[str, dict[str, str]]:
    environ = draft.environ or {}
    root = state_root(environ)
    return {
        group.name: {
            _PIPE_VARIABLE: f"{root}/{card.card}/pipe",
            "CUDA_MPS_LOG_DIRECTORY": f"{root}/{card.card}/log",
            VISIBLE_DEVICES: draft.devices.uuid(card.gpu_ids[0])
            or visible_device(card.gpu_ids[0], environ),
            "SGLANG_ONE_VISIBLE_DEVICE_PER_PROCESS": "true",
            CLIENT_TOKEN_VARIABLE: f"{run_id}/{group.name}",
        }
        for card in cards
        for group in card.groups
    }


def _quota_problems(draft: PlanDraft) -> Iterator[Problem]:
    limit = draft.config.mps_quota.pinned_memory
    if limit is None:
        return
    for stage in draft.config.stages:
        reserved = stage.total_reserve_bytes
        if reserved is not None and reserved > limit:
            yield Problem(
                "mps_quota.pinned_memory",
                f"allows a process {format_gib(limit)}, and stage '{stage.name}' reserves "
                f"{format_gib(reserved)} (stages.{stage.name}.total_reserve_bytes)",
            )


def _override_problems(draft: PlanDraft) -> Iterator[Problem]:
    for stage in draft.config.stages:
        for key in _STAGE_OVERRIDES:
            if key in stage.env:
                yield Problem(
                    f"stages.{stage.name}.env.{key}",
                    "MPS does not support per-worker CUDA visibility, device ordering, external "
                    f"MPS, or weight-sharing overrides: process '{stage.process_name}', stage "
                    f"'{stage.name}' sets {key}={stage.env[key]!r}. Configure CUDA visibility and "
                    "device order in the parent environment, request weight sharing with "
                    "weight_share=on instead of an environment variable, or use mps=off.",
                )


def _inherited_problems(draft: PlanDraft) -> Iterator[Problem]:
    environ = draft.environ or {}
    if _PIPE_VARIABLE in environ:
        yield Problem(
            "mps",
            f"mps={draft.config.mps} cannot join {_PIPE_VARIABLE}={environ[_PIPE_VARIABLE]!r} from "
            "the parent environment; remove it or use mps=off.",
        )
    if SHARE_VARIABLE in environ:
        yield Problem(
            "mps",
            f"mps={draft.config.mps} cannot combine with parent {SHARE_VARIABLE}="
            f"{environ[SHARE_VARIABLE]!r}; remove it and request weight sharing with "
            "weight_share=on, which assigns replica roles itself, or use mps=off",
        )


def _path_problems(draft: PlanDraft) -> Iterator[Problem]:
    root = state_root(draft.environ or {})
    longest = max((len(card.card.encode()) for card in shared_cards(draft)), default=0)
    length = len(root.encode()) + 1 + longest + len(_CONTROL_SOCKET)
    if length > _MAX_SOCKET_PATH_BYTES:
        yield Problem(
            "mps",
            f"the MPS state directory {root!r} makes socket paths of {length} bytes; at most "
            f"{_MAX_SOCKET_PATH_BYTES} are possible; set {STATE_ROOT_VARIABLE} to a shorter one",
        )


def _on_problems(draft: PlanDraft) -> Iterator[Problem]:
    if draft.devices.has_mps_control is False:
        yield Problem("mps", f"mps=on but {_CONTROL} is not on PATH")
        return
    unresolved = unresolved_gpus(draft)
    if unresolved:
        yield Problem("mps", f"mps=on could not resolve the physical GPU mapping: {unresolved}")
        return
    cards = shared_cards(draft)
    if not cards:
        yield Problem("mps", f"mps=on but {_NO_CLIENT}")
    for card in cards:
        device, ordinal = device_obstacle(draft, card), ordinal_obstacle(draft, card)
        if device:
            yield Problem(
                "mps", f"mps=on but a physical GPU does not support MPS: {card.card}: {device}"
            )
        if ordinal:
            yield Problem("mps", f"mps=on but {card.shown} is not eligible for MPS: {ordinal}")
