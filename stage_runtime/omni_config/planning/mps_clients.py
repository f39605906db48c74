"""Which processes could be MPS clients, on which physical card, and what stands in the way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omni_config.planning.draft import PlanDraft, launch_values
from omni_config.planning.processes import ProcessGroup

_ORDINAL = re.compile(r"cuda:([0-9]+)")


@dataclass(frozen=True, slots=True)
class SharedCard:
    """One physical card and the processes on it that could attach.

    Attributes:
        card: UUID, or `gpu<id>` while the device behind a GPU id is not known.
        gpu_ids: GPU ids that are this card.
    """

    card: str
    gpu_ids: tuple[int, ...]
    groups: tuple[ProcessGroup, ...]

    @property
    def shown(self) -> str:
        """The card as messages name it."""
        if self.card == f"gpu{self.gpu_ids[0]}":
            return f"GPU {self.gpu_ids[0]}"
        return f"physical GPU {self.card} (logical GPUs {list(self.gpu_ids)})"


def client_obstacle(group: ProcessGroup) -> str | None:
    """Return why a process can never attach, null when it can."""
    if group.gpu_id is None:
        return "runs on the CPU only"
    if group.tensor_parallel:
        return "is a tensor-parallel rank, which uses its GPU alone"
    if len(group.runtime_gpu_ids) > 1:
        return f"uses several GPUs {list(group.runtime_gpu_ids)}"
    return None


def shared_cards(draft: PlanDraft) -> list[SharedCard]:
    """Gather possible clients by physical card: two GPU ids may be one card."""
    found: dict[str, tuple[set[int], list[ProcessGroup]]] = {}
    for group, gpu_id in _clients(draft):
        card = draft.devices.uuid(gpu_id) or f"gpu{gpu_id}"
        gpu_ids, groups = found.setdefault(card, (set(), []))
        gpu_ids.add(gpu_id)
        groups.append(group)
    return [
        SharedCard(card, tuple(sorted(gpu_ids)), tuple(groups))
        for card, (gpu_ids, groups) in found.items()
    ]


def unresolved_gpus(draft: PlanDraft) -> str:
    """Name the GPU ids that the device table lacks, empty when it lacks none.

    A table without any device is unknown as a whole: clients are then planned per GPU id.
    """
    known = draft.devices.devices
    if not known:
        return ""
    missing = sorted({gpu_id for _, gpu_id in _clients(draft)} - known.keys())
    return ", ".join(
        f"CUDA ordinal {gpu_id}: device inspection returned no result" for gpu_id in missing
    )


def device_obstacle(draft: PlanDraft, card: SharedCard) -> str | None:
    """Return why the card itself cannot be shared through MPS."""
    for gpu_id in card.gpu_ids:
        device = draft.devices.devices.get(gpu_id)
        if device is not None and device.mps_obstacle:
            return f"CUDA ordinal {gpu_id}: {device.mps_obstacle}"
    return None


def ordinal_obstacle(draft: PlanDraft, card: SharedCard) -> str | None:
    """Return which process names a device by a number that a client, seeing one card, has not."""
    for group in card.groups:
        written = [
            (path, ordinal)
            for instance in draft.members(group)
            for path, value in launch_values(draft, instance.stage)
            for ordinal in _ordinals(value)
        ]
        if written:
            ordinals = sorted({ordinal for _, ordinal in written})
            paths = ", ".join(dict.fromkeys(path for path, _ in written))
            return (
                f"process '{group.name}' contains explicit CUDA ordinal(s) {ordinals} ({paths}) "
                "that would be invalid after single-device MPS normalization; use cuda:0 for the "
                "worker-local device or use mps=off"
            )
    return None


def _clients(draft: PlanDraft) -> list[tuple[ProcessGroup, int]]:
    return [
        (group, group.gpu_id)
        for group in draft.processes.groups
        if group.gpu_id is not None and client_obstacle(group) is None
    ]


def _ordinals(value: object) -> Iterator[int]:
    """Yield the N of every `cuda:N` inside a value, except 0, which is right in any client."""
    if isinstance(value, str):
        yield from (int(found) for found in _ORDINAL.findall(value) if int(found))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _ordinals(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _ordinals(item)
