"""Stages that share their weights, each copy in a process of its own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omni_config.planning.weight_share import (
    RUN_ID_VARIABLE,
    SHARE_VARIABLE,
    TIMEOUT_VARIABLE,
)
from omni_runtime.stage_wiring import load_hook
from omni_runtime.weight_share.offer import offered_weights
from omni_runtime.weight_share.role import role_of
from omni_runtime.weight_share.share import WeightShare
from tests.support.stage_process import StageProcess

FACTORY = f"{__name__}.create_shared"
ATTACH_SECONDS = 200


def create_shared(*, factory: str, stage: str, **kwargs: object) -> Any:
    """Call a stage's factory as a group does that has a role in its environment."""
    role = role_of(os.environ)
    assert role is not None
    share = WeightShare(role, {"configuration": "of the test"})
    with offered_weights(stage, share):
        return load_hook(factory)(**kwargs)


@contextmanager
def shared_copies(
    factory: str, stage: str, store: Path, count: int = 2, **kwargs: object
) -> Iterator[list[StageProcess]]:
    """Run copies of a stage, the leader first."""
    wanted = {"factory": factory, "stage": stage, **kwargs}
    copies: list[StageProcess] = []
    try:
        for index in range(count):
            copies.append(StageProcess(FACTORY, wanted, role_variables(index, store)))
        yield copies
    finally:
        for copy in reversed(copies):
            copy.close()


def role_variables(index: int, store: Path) -> Mapping[str, str]:
    """Return the environment of a copy; the first one leads."""
    kind = "follower" if index else "leader"
    return {
        SHARE_VARIABLE: f"{kind}:{store}",
        RUN_ID_VARIABLE: "test",
        TIMEOUT_VARIABLE: str(ATTACH_SECONDS),
    }


def engine_tensors(scheduler: Any) -> dict[str, str]:
    """Return a digest of every tensor of a hosted engine's model: form and bits."""
    return tensor_digests(scheduler.hosted.model)


def tensor_digests(module: Any) -> dict[str, str]:
    """Return a digest of every tensor of a module: form and bits."""
    import torch

    from omni_runtime.weight_share.module_tensors import held_tensors, layout_of

    found = {}
    for slot, tensor in held_tensors(module):
        bits = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        digest = hashlib.sha256(bits.tobytes()).hexdigest()
        found[f"{slot.kind} {slot}"] = f"{layout_of(tensor)} {digest}"
    return found
