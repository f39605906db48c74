"""Which replicas have proved themselves: those that took part in answering the author's warm-ups.

A model's author names requests that cross every route through the stages. A replica is cold until
each of them that passes its group was answered with its help. A pipeline is ready once every
warm-up was answered by replicas that are still there; so one that joins later is warmed up beside
the others, and takes nothing from anybody. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omni_gateway.coordinator.directory import Directory, Replica


@dataclass(frozen=True, slots=True)
class WarmUpDue:
    """A warm-up that some cold replica can answer now, with others of its revision."""

    name: str
    revision: str


def warm_ups_due(directory: Directory) -> tuple[WarmUpDue, ...]:
    """Return what can be tried now."""
    return tuple(
        WarmUpDue(name, revision)
        for name in directory.topology.warm_ups
        for revision, path in _paths(directory, name)
        if any(name in one.cold for replicas in path for one in replicas)
    )


def is_answered(directory: Directory, name: str) -> bool:
    """Whether replicas of one revision that answered a warm-up make a whole path."""
    return any(
        all(any(name not in one.cold for one in replicas) for replicas in path)
        for _, path in _paths(directory, name)
    )


def warming(directory: Directory) -> Mapping[int, str]:
    """Return a warm-up that each replica has yet to answer and can, by incarnation.

    One that still lacks company of its revision cannot be tried, and nothing is held against it.
    """
    return {
        one.incarnation: name
        for name in directory.topology.warm_ups
        for _, path in _paths(directory, name)
        for replicas in path
        for one in replicas
        if name in one.cold
    }


def _paths(directory: Directory, name: str) -> Iterator[tuple[str, list[list[Replica]]]]:
    """Yield each revision that a warm-up can cross, with the replicas of every group on its way."""
    groups = directory.topology.warm_up_groups(name)
    routable = [[one for one in directory.of_group(group) if one.routable] for group in groups]
    revisions = {revision for replicas in routable for one in replicas for revision in one.serves}
    for revision in sorted(revisions):
        path = [[one for one in replicas if revision in one.serves] for replicas in routable]
        if all(path):
            yield revision, path
