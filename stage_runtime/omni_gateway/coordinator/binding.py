"""Which replica of each group serves a request: decided once, when it is admitted, and kept for its
life.

The least outstanding replica wins and equal ones take turns; one that has not been warmed up comes
last. All replicas of a request serve one revision, because versions of a pipeline are only ever
tested as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from omni_gateway.coordinator.directory import Directory, Replica
from omni_wire.identity import Endpoint


@dataclass(frozen=True, slots=True)
class Binding:
    """The replicas of one request.

    Attributes:
        revision: the revision that all of them serve.
        endpoints: endpoint of each logical stage; stages the request cannot need may be absent.
        needed: incarnations without which the request cannot complete.
        bound: every incarnation that may hold a part of the request.
        entry: incarnation of the group with the entry stage.
    """

    revision: str
    endpoints: Mapping[str, Endpoint]
    needed: frozenset[int]
    bound: frozenset[int]
    entry: int


def bind(
    directory: Directory, needed: frozenset[str], pin: str | None = None, warm_up: str = ""
) -> Binding | None:
    """Choose replicas for a request and count it on those it needs.

    Args:
        needed: logical stages that the request can pass on the way to its expected terminals.
        pin: the one revision to use; null takes the least loaded complete one, the newest among
            equals.
        warm_up: name of the warm-up that the request is; it takes replicas that need it first.

    Returns:
        Null while no revision (or not the pinned one) has a routable replica of every needed group.
    """
    groups = directory.topology.groups_needed(needed)
    choices = [
        choice
        for revision in _revisions(directory, pin)
        if (choice := _choose(directory, revision, groups, warm_up)) is not None
    ]
    if not choices:
        return None
    best = min(choices, key=_Choice.rank)
    for replica in best.replicas:
        replica.outstanding += 1
        directory.take_turn(replica)
    return _binding(directory, best, groups)


def unbind(directory: Directory, binding: Binding) -> None:
    """Take a finished request off the count of its replicas."""
    for incarnation in binding.needed:
        replica = directory.get(incarnation)
        if replica is not None:
            replica.outstanding -= 1


@dataclass(frozen=True, slots=True)
class _Choice:
    revision: str
    replicas: tuple[Replica, ...]

    def rank(self) -> tuple[bool, bool, int, int]:
        return (
            any(bool(replica.cold) for replica in self.replicas),
            any(not replica.connected for replica in self.replicas),
            max(replica.outstanding for replica in self.replicas),
            -max(replica.order for replica in self.replicas),
        )


def _revisions(directory: Directory, pin: str | None) -> Iterable[str]:
    if pin is not None:
        return (pin,)
    return dict.fromkeys(revision for replica in directory for revision in sorted(replica.serves))


def _choose(
    directory: Directory, revision: str, groups: Iterable[str], warm_up: str
) -> _Choice | None:
    chosen: list[Replica] = []
    for group in groups:
        replica = _least_outstanding(directory, revision, group, warm_up)
        if replica is None:
            return None
        chosen.append(replica)
    return _Choice(revision, tuple(chosen))


def _least_outstanding(
    directory: Directory, revision: str, group: str, warm_up: str = ""
) -> Replica | None:
    candidates = [
        one for one in directory.of_group(group) if one.routable and revision in one.serves
    ]

    def rank(one: Replica) -> tuple[bool, bool, int, int]:
        unwanted = warm_up not in one.cold if warm_up else bool(one.cold)
        return unwanted, not one.connected, one.outstanding, one.last_bound

    return min(candidates, key=rank, default=None)


def _binding(directory: Directory, choice: _Choice, needed_groups: Collection[str]) -> Binding:
    topology = directory.topology
    spare = [group for group in topology.groups if group not in needed_groups]
    extra = [_least_outstanding(directory, choice.revision, group) for group in spare]
    everyone = (*choice.replicas, *(one for one in extra if one is not None))
    endpoints = {stage: end for one in everyone for stage, end in one.endpoints()}
    return Binding(
        revision=choice.revision,
        endpoints=endpoints,
        needed=frozenset(one.incarnation for one in choice.replicas),
        bound=frozenset(one.incarnation for one in everyone),
        entry=endpoints[topology.entry].incarnation,
    )
