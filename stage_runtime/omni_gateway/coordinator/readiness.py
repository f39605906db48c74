"""Whether requests can be served, and what stands in the way: derived from the directory. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omni_gateway.coordinator.directory import Directory, Replica
from omni_gateway.coordinator.warm_ups import WarmUpDue, is_answered, warm_ups_due

NOT_ANSWERED = "not answered yet"


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether requests can be served.

    Attributes:
        reasons: why a stage cannot serve, by stage name.
        replicas: routable replicas of every stage.
        warm_ups: why a warm-up counts as not answered, by its name.
        due: the warm-ups that can be tried now; a replica that joins a ready pipeline has some.
    """

    reasons: Mapping[str, str]
    replicas: Mapping[str, int]
    warm_ups: Mapping[str, str]
    due: tuple[WarmUpDue, ...] = ()

    @property
    def ready(self) -> bool:
        """True when every stage has a routable replica, and every warm-up was answered."""
        return not self.reasons and not self.warm_ups

    def lines(self) -> list[str]:
        """Return what stands in the way, for people."""
        stages = [f"{stage}: {reason}" for stage, reason in self.reasons.items()]
        return stages + [f"warm-up '{name}': {reason}" for name, reason in self.warm_ups.items()]


def readiness_of(directory: Directory, problems: Mapping[str, str]) -> Readiness:
    """Return whether requests can be served now.

    Args:
        problems: how the latest try of a warm-up failed, by its name.
    """
    counts = dict.fromkeys(directory.topology.stages, 0)
    for group in directory.topology.groups:
        routable = sum(one.routable for one in directory.of_group(group))
        counts.update(dict.fromkeys(directory.topology.stages_of(group), routable))
    lacking = {
        name: problems.get(name, NOT_ANSWERED)
        for name in directory.topology.warm_ups
        if not is_answered(directory, name)
    }
    return Readiness(unroutable_stages(directory), counts, lacking, warm_ups_due(directory))


def unroutable_stages(directory: Directory) -> dict[str, str]:
    """Return the stages without a routable replica, with the reason."""
    reasons: dict[str, str] = {}
    for group in directory.topology.groups:
        replicas = directory.of_group(group)
        if not any(one.routable for one in replicas):
            stages = directory.topology.stages_of(group)
            reasons.update(dict.fromkeys(stages, _why_not(group, replicas)))
    return reasons


def why_unroutable(directory: Directory, needed: frozenset[str], revision: str | None) -> str:
    """Return why no request that needs these stages can be bound now."""
    reasons = unroutable_stages(directory)
    missing = [reasons[one] for one in directory.topology.stages if one in needed & reasons.keys()]
    if missing:
        return "; ".join(dict.fromkeys(missing))
    which = "any one revision" if revision is None else f"revision '{revision}'"
    return f"no complete path of {which}"


def _why_not(group: str, replicas: list[Replica]) -> str:
    if not replicas:
        return f"group '{group}' has no replica"
    draining = sum(one.draining for one in replicas)
    waiting = {reason for one in replicas for reason in one.not_ready.values()}
    words = [f"{draining} draining"] if draining else []
    return f"group '{group}': {', '.join(words + sorted(waiting))}"
