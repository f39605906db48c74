"""How far a rollout may depart from the wanted number of pods, in pods."""

from __future__ import annotations

from dataclasses import dataclass

from omni_operator.api.groups import CountOrPercent, GroupRollout
from omni_operator.api.spec import Rollout


@dataclass(frozen=True, slots=True)
class StepLimits:
    """Pods above and below the wanted number."""

    max_surge: int
    max_unavailable: int


def step_limits(rollout: Rollout, group: GroupRollout, replicas: int) -> StepLimits:
    """Return the limits of a pod shape.

    Surge-free rollouts never surge, whatever is written; they make room by taking pods away, so at
    least one may be missing.
    """
    if rollout.type == "SurgeFree":
        return StepLimits(0, max(1, _pods(group.max_unavailable, replicas, default=1)))
    surge = _pods(group.max_surge, replicas, default=1, up=True)
    unavailable = _pods(group.max_unavailable, replicas, default=0)
    # A percentage of few pods may round to no step at all.
    return StepLimits(surge, unavailable if surge else max(1, unavailable))


def has_surge(rollout: Rollout, group: GroupRollout) -> bool:
    """Whether new pods may stand beside all of the old ones."""
    return rollout.type == "Surge" and group.max_surge not in (0, "0%")


def _pods(value: CountOrPercent | None, replicas: int, *, default: int, up: bool = False) -> int:
    if value is None:
        return default
    if isinstance(value, int):
        return value
    hundredths = int(value.removesuffix("%")) * replicas
    return -(-hundredths // 100) if up else hundredths // 100
