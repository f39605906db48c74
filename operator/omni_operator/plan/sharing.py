"""How the groups of a card get their GPU: chosen by the cluster, or refused with what is missing.

A plain sidecar beside a container that holds `nvidia.com/gpu: 1` sees no GPU, and two containers
cannot share one; that is why only Dynamic Resource Allocation puts groups of one card into
containers or pods of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from omni_operator.api.spec import GpuSharing
from omni_operator.names import NVIDIA_DEVICE_CLASS, NVIDIA_GPU
from omni_operator.plan.capabilities import Capabilities
from omni_operator.plan.units import CardSet


class PodMode(StrEnum):
    """How a pod gets its GPUs."""

    CPU = "CPU"
    EXCLUSIVE = "Exclusive"
    SHARED_CLAIM = "SharedClaim"
    SIDECAR = "Sidecar"
    IN_CONTAINER = "InContainer"
    DEVICE_PLUGIN = "DevicePlugin"

    @property
    def uses_claims(self) -> bool:
        """Whether devices come from ResourceClaims and not from counted resources."""
        return self in (PodMode.SHARED_CLAIM, PodMode.SIDECAR)


@dataclass(frozen=True, slots=True)
class Sharing:
    """The choice for one card set.

    Attributes:
        reason: why it was chosen, for people.
    """

    mode: PodMode
    reason: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a card set cannot be had.

    Attributes:
        reason: one word, the condition's reason.
        message: what is missing and what to do.
    """

    reason: str
    message: str


def choose_sharing(cards: CardSet, wanted: GpuSharing, cluster: Capabilities) -> Sharing | Refusal:
    """Return how a card set is shared, or why it cannot be."""
    if wanted.mode == "Auto":
        sharing = _automatic(cards, wanted, cluster)
    else:
        sharing = Sharing(PodMode(wanted.mode), f"spec.gpuSharing.mode is {wanted.mode}")
        if not cards.shared and wanted.mode != "DevicePlugin":
            sharing = Sharing(PodMode.EXCLUSIVE, f"{cards.name} has one group")
    return next(_refusals(cards, sharing.mode, wanted, cluster), sharing)


def device_class(wanted: GpuSharing) -> str:
    """Return the DeviceClass of the GPUs."""
    return wanted.device_class_name or NVIDIA_DEVICE_CLASS


def _automatic(cards: CardSet, wanted: GpuSharing, cluster: Capabilities) -> Sharing:
    if not cards.shared:
        return Sharing(PodMode.EXCLUSIVE, f"{cards.name} has one group")
    if cards.shares_weights:
        return Sharing(
            PodMode.IN_CONTAINER, f"copies on {cards.name} share weights, so they share a container"
        )
    name = device_class(wanted)
    offered = name in (cluster.device_classes or ())
    if not offered:
        return Sharing(
            PodMode.IN_CONTAINER,
            f"groups share {cards.name} and the cluster offers no DeviceClass '{name}'",
        )
    if cards.mps:
        return Sharing(PodMode.SIDECAR, f"groups share {cards.name} through MPS on one claim")
    return Sharing(PodMode.SHARED_CLAIM, f"groups share {cards.name} by one claim")


def _refusals(
    cards: CardSet, mode: PodMode, wanted: GpuSharing, cluster: Capabilities
) -> Iterator[Refusal]:
    match mode:
        case PodMode.SHARED_CLAIM:
            yield from _claim_refusals(mode, wanted, cluster)
            yield from _partial_refusals(cards, mode)
            yield from _shared_claim_refusals(cards)
        case PodMode.SIDECAR:
            yield from _claim_refusals(mode, wanted, cluster)
            yield from _partial_refusals(cards, mode)
            yield from _sidecar_refusals(cards, cluster)
        case PodMode.EXCLUSIVE if cards.shared:
            yield from _exclusive_refusals(cards)
        case PodMode.DEVICE_PLUGIN:
            yield from _device_plugin_refusals(cards, wanted, cluster)


def _claim_refusals(mode: PodMode, wanted: GpuSharing, cluster: Capabilities) -> Iterator[Refusal]:
    name = device_class(wanted)
    if cluster.device_classes is None:
        yield Refusal(
            "DRAUnavailable",
            f"{mode} needs Dynamic Resource Allocation, and this cluster does not serve "
            "resource.k8s.io/v1; use gpuSharing.mode InContainer, or a cluster of 1.34 or newer",
        )
    elif name not in cluster.device_classes:
        known = ", ".join(sorted(cluster.device_classes)) or "none"
        yield Refusal(
            "DeviceClassMissing",
            f"{mode} needs DeviceClass '{name}'; this cluster has: {known}. Install the GPU "
            "vendor's DRA driver, set gpuSharing.deviceClassName, or use mode InContainer",
        )


def _partial_refusals(cards: CardSet, mode: PodMode) -> Iterator[Refusal]:
    """Refuse a unit with several cards of a claim but not all: a container can name one or all."""
    for unit in cards.units:
        if 1 < len(set(unit.gpu_ids)) < len(cards.gpu_ids):
            yield Refusal(
                "ClaimNotDivisible",
                f"'{unit.name}' uses GPUs {list(unit.gpu_ids)} of {list(cards.gpu_ids)}; a "
                f"container gets one device of a claim or all, so {mode} cannot give it these; "
                "use mode InContainer",
            )


def _shared_claim_refusals(cards: CardSet) -> Iterator[Refusal]:
    if cards.mps:
        yield Refusal(
            "MPSAcrossPods",
            f"SharedClaim puts the groups of {cards.name} into pods of their own, which cannot "
            "reach one MPS daemon; use mode Sidecar, or spec.config.mps: off",
        )
    if cards.shares_weights:
        yield Refusal(
            "WeightsAcrossPods",
            f"copies on {cards.name} share weights, which needs one pod; use mode InContainer, or "
            "spec.config.weight_share: off",
        )


def _sidecar_refusals(cards: CardSet, cluster: Capabilities) -> Iterator[Refusal]:
    if not cluster.has_sidecars:
        yield Refusal(
            "SidecarsUnavailable",
            f"Sidecar needs restartable init containers (Kubernetes 1.29), and this cluster is "
            f"1.{cluster.version}; use mode InContainer",
        )
    if not cards.mps:
        yield Refusal(
            "MPSOff",
            f"Sidecar is a pod with an MPS daemon, and the plan gives {cards.name} none; set "
            "spec.config.mps: on, or use mode SharedClaim or InContainer",
        )
    if cards.shares_weights:
        yield Refusal(
            "WeightsAcrossContainers",
            f"copies on {cards.name} share weights, so they meet in one directory and start and "
            "end as a set, which only one container sees to; use mode InContainer, or "
            "spec.config.weight_share: off",
        )


def _exclusive_refusals(cards: CardSet) -> Iterator[Refusal]:
    if cards.mps:
        yield Refusal(
            "NothingToShare",
            "Exclusive gives every group a GPU of its own, so MPS has nothing to share; set "
            "spec.config.mps: off, or use another mode",
        )
    if cards.shares_weights:
        yield Refusal(
            "NothingToShare",
            "Exclusive gives every copy a GPU of its own, so they cannot share weights; set "
            "spec.config.weight_share: off, or use another mode",
        )


def _device_plugin_refusals(
    cards: CardSet, wanted: GpuSharing, cluster: Capabilities
) -> Iterator[Refusal]:
    name = wanted.resource_name
    if name == NVIDIA_GPU:
        yield Refusal(
            "ResourceNameMissing",
            "DevicePlugin needs the cluster's shared resource in gpuSharing.resourceName, such as "
            f"nvidia.com/gpu.shared; {name} is a whole GPU",
        )
    elif name not in cluster.resources:
        yield Refusal(
            "ResourceNotAdvertised",
            f"no node advertises {name}; configure sharing in the device plugin, or use another "
            "gpuSharing.mode",
        )
    if cards.mps:
        yield Refusal(
            "MPSIsTheClusters",
            "in mode DevicePlugin the cluster's own MPS daemon serves the GPU; set "
            "spec.config.mps: off",
        )
    if cards.shares_weights:
        yield Refusal(
            "WeightsAcrossPods",
            f"copies on {cards.name} share weights, which needs one pod; use mode InContainer",
        )
    parallel = next((unit for unit in cards.units if len(unit.gpu_ids) > 1), None)
    if parallel is not None:
        yield Refusal(
            "TensorParallel",
            f"'{parallel.name}' needs {len(parallel.gpu_ids)} whole GPUs, and shares of "
            f"{name} may all be of one; use another gpuSharing.mode",
        )
