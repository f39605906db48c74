"""Publishing a loaded module, and attaching one that has no memory yet."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any, TypeVar

import torch
from torch import nn

from omni_runtime.logging import EventLogger
from omni_runtime.weight_share.connection import ask, connect
from omni_runtime.weight_share.manifest import (
    Blueprint,
    Manifest,
    SharedTensor,
    from_json,
    require_equal,
    to_json,
)
from omni_runtime.weight_share.marks import Attributes, apply_marks, marks_since
from omni_runtime.weight_share.memory import ModuleMemory, open_memory
from omni_runtime.weight_share.module_tensors import blueprint_of, collect, install
from omni_runtime.weight_share.offer import StageShare, offered_share
from omni_runtime.weight_share.publication import PROTOCOL, Publication

logger = EventLogger(__name__)

M = TypeVar("M", bound=nn.Module)


class Constructed:
    """A module as its constructor left it: what a follower must find equal before it attaches."""

    def __init__(self, module: nn.Module) -> None:
        self.blueprint: Blueprint = blueprint_of(module)
        self.attributes = Attributes.of(module)


def filled_module(
    module: M, fill: Callable[[M], M], facts: Mapping[str, str], device: torch.device
) -> M:
    """Return a module that was built on the meta device with its weights: filled here, or, where
    weights are shared with a leader, its.

    Args:
        fill: loads the weights.
        facts, device: as in `attach`.

    Raises:
        WeightShareError: weights are to be shared and cannot be.
    """
    taken = offered_share()
    if taken is None:
        return fill(module)
    facts = {**facts, "device": device_fact(device)}
    if not taken.leads:
        return attach(taken, module, facts, device)
    constructed = Constructed(module)
    filled = fill(module)
    publish(taken, filled, constructed, facts)
    return filled


def publish(
    taken: StageShare, module: nn.Module, constructed: Constructed, facts: Mapping[str, str]
) -> None:
    """Move a loaded module's parameters into shared memory and offer them until this process ends.

    Args:
        facts: what a follower must have alike, beside what the share itself says.

    Raises:
        CannotShare: the module keeps something that followers could not get.
        UnsafeStore: the directory of the plan is not private.
    """
    marks = marks_since(constructed.attributes, module)
    collected = collect(module)
    manifest = Manifest(
        facts={**taken.share.facts, **environment_facts(), **facts},
        blueprint=constructed.blueprint,
        tensors=collected.shared,
        marks=marks,
    )
    memory = ModuleMemory(collected)
    role = taken.share.role
    taken.share.keep(Publication(taken.socket, role.run_id, to_json(manifest), memory))
    logger.info(
        "weights are offered",
        stage=taken.stage,
        socket=taken.socket,
        tensors=len(collected.shared),
        shared_bytes=_shared_bytes(collected.shared, collected.sizes),
    )


def attach(taken: StageShare, module: M, facts: Mapping[str, str], device: torch.device) -> M:
    """Lay a module that was built on the meta device over the leader's weights; return it.

    Args:
        device: where the leader's weights are: its card as this process numbers it, or the CPU.

    Raises:
        LeaderAbsent: nobody offered weights in time.
        LeaderLost: the leader ended meanwhile, or refused.
        WeightsDiffer: this process would have loaded other weights.
        CannotShare: the module keeps something that the leader does not offer.
    """
    role = taken.share.role
    logger.info("waiting for the leader's weights", stage=taken.stage, socket=taken.socket)
    connection = connect(taken.socket, role.attach_seconds)
    with contextlib.ExitStack() as undo:
        undo.callback(connection.close)
        answer, descriptors = ask(connection, _hello(role.run_id))
        with contextlib.ExitStack() as closing:
            for descriptor in descriptors:
                closing.callback(os.close, descriptor)
            manifest = from_json(answer["manifest"])
            own = {**taken.share.facts, **environment_facts(), **facts}
            require_equal(manifest, own, blueprint_of(module))
            storages = open_memory(answer["places"], descriptors, device)
        apply_marks(module, manifest.marks)
        install(module, manifest.tensors, storages)
        undo.pop_all()
    taken.share.hold(taken.stage, connection)
    sizes = {place["storage"]: place["bytes"] for place in answer["places"]}
    logger.info(
        "attached to the leader's weights",
        stage=taken.stage,
        tensors=len(manifest.tensors),
        shared_bytes=_shared_bytes(manifest.tensors, sizes),
    )
    module.eval().requires_grad_(False)
    return module


def _hello(run_id: str) -> dict[str, Any]:
    return {"protocol": PROTOCOL, "run_id": run_id, "pid": os.getpid()}


def environment_facts() -> dict[str, str]:
    """Return what decides how weights are laid out, beside the model: versions of libraries."""
    found = {"torch": torch.__version__}
    with contextlib.suppress(metadata.PackageNotFoundError):
        found["sglang"] = metadata.version("sglang")
    return found


def device_fact(device: torch.device) -> str:
    """Return the name of a device that every process of this machine has alike."""
    kind: str = device.type
    if kind != "cuda":
        return kind
    card: object = torch.cuda.get_device_properties(device).uuid
    return f"cuda {card}"


def _shared_bytes(tensors: Sequence[SharedTensor], sizes: Mapping[int, int]) -> int:
    """Return how many bytes are there once for all."""
    return sum(sizes[number] for number in {one.storage for one in tensors if not one.private})
