"""Process groups as pods see them, and which of them share cards.

A unit is what must start and stop together: one copy of a process group with all its
tensor-parallel ranks. Units that share a card, directly or through others, form a card set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from omni_config.planning.plan import PipelineRuntime
from omni_config.planning.processes import ProcessGroup


@dataclass(frozen=True, slots=True)
class Unit:
    """One copy of a process group.

    Attributes:
        name: `talker` or, of several copies, `talker@r1`.
        process: logical process group.
        groups: names of its processes; several when it is tensor parallel, rank 0 first.
        gpu_ids: cards of the plan, in rank order; empty on the CPU.
        stages: stage instances it holds.
        mps_client: whether it can attach to an MPS daemon.
    """

    name: str
    process: str
    groups: tuple[str, ...]
    gpu_ids: tuple[int, ...]
    stages: tuple[str, ...]
    mps_client: bool


@dataclass(frozen=True, slots=True)
class CardSet:
    """Units that share cards, and the cards.

    Attributes:
        gpu_ids: cards of the plan, sorted.
        mps: whether the plan lets the units of a card attach to an MPS daemon.
        shares_weights: whether some of the units use one copy of their weights.
    """

    gpu_ids: tuple[int, ...]
    units: tuple[Unit, ...]
    mps: bool
    shares_weights: bool

    @property
    def name(self) -> str:
        """`gpu0`, or `gpu0-1` for several cards."""
        return f"gpu{'-'.join(map(str, self.gpu_ids))}"

    @property
    def shared(self) -> bool:
        """Whether there is anything to share."""
        return len(self.units) > 1


def units_of(runtime: PipelineRuntime) -> tuple[Unit, ...]:
    """Return every unit of a plan, in the order of its processes."""
    found: dict[str, list[ProcessGroup]] = {}
    for group in runtime.process_plan.all_groups:
        found.setdefault(_unit_name(group), []).append(group)
    return tuple(_unit(name, groups, runtime) for name, groups in found.items())


def card_sets(runtime: PipelineRuntime, units: tuple[Unit, ...]) -> tuple[CardSet, ...]:
    """Return the card sets of a plan by their lowest card; CPU units are in none."""
    sets: list[tuple[set[int], list[Unit]]] = []
    for unit in units:
        if not unit.gpu_ids:
            continue
        cards, members = set(unit.gpu_ids), [unit]
        for other in [one for one in sets if one[0] & cards]:
            sets.remove(other)
            cards |= other[0]
            members = other[1] + members
        sets.append((cards, members))
    return tuple(
        _card_set(tuple(sorted(cards)), tuple(members), runtime)
        for cards, members in sorted(sets, key=lambda one: min(one[0]))
    )


def sharing_copies(
    runtime: PipelineRuntime, units: tuple[Unit, ...]
) -> tuple[tuple[Unit, ...], ...]:
    """Return the copies on the CPU that hold their weights once, set by set."""
    by_group = {group: unit for unit in units for group in unit.groups}
    return tuple(
        tuple(by_group[name] for name in (share.leader, *share.followers))
        for share in runtime.weight_share.groups
        if share.gpu_id is None
    )


def _unit_name(group: ProcessGroup) -> str:
    copies = group.replica_count > 1
    return f"{group.process}@r{group.replica_index}" if copies else group.process


def _unit(name: str, groups: list[ProcessGroup], runtime: PipelineRuntime) -> Unit:
    first = groups[0]
    return Unit(
        name=name,
        process=first.process,
        groups=tuple(group.name for group in groups),
        gpu_ids=tuple(_gpu_ids(groups)),
        stages=first.stage_names,
        mps_client=first.name in runtime.mps.environment,
    )


def _gpu_ids(groups: list[ProcessGroup]) -> Iterator[int]:
    for group in groups:
        if group.runtime_gpu_ids:
            yield from group.runtime_gpu_ids
        elif group.gpu_id is not None:
            yield group.gpu_id


def _card_set(
    gpu_ids: tuple[int, ...], units: tuple[Unit, ...], runtime: PipelineRuntime
) -> CardSet:
    names = {group for unit in units for group in unit.groups}
    shares = runtime.weight_share.groups
    return CardSet(
        gpu_ids=gpu_ids,
        units=units,
        mps=any(unit.mps_client for unit in units),
        shares_weights=any(share.leader in names for share in shares),
    )
