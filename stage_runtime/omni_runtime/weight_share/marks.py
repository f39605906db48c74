"""What loading leaves on a module beside tensors.

Post-processing of weights may repack them and note it on the layer, as a plain value that the
forward pass reads. A follower does not post-process, since its tensors are the leader's result, so
such notes are handed on. What is no plain value cannot be, and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from omni_runtime.weight_share.errors import CannotShare
from omni_runtime.weight_share.manifest import Plain
from omni_runtime.weight_share.module_tensors import own_attributes

_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of every submodule at one moment, by path; objects are kept alive."""

    by_module: Mapping[str, Mapping[str, object]]

    @classmethod
    def of(cls, module: nn.Module) -> Attributes:
        """Return the attributes of a module now."""
        return cls({path: dict(own_attributes(part)) for path, part in module.named_modules()})


def marks_since(before: Attributes, module: nn.Module) -> dict[str, dict[str, Plain]]:
    """Return the plain attributes that changed, by path and name.

    Raises:
        CannotShare: a submodule came or went, or another object took an attribute.
    """
    after = Attributes.of(module)
    moved = sorted(before.by_module.keys() ^ after.by_module.keys())
    if moved:
        raise CannotShare(f"loading added or removed the submodule '{moved[0]}'")
    found: dict[str, dict[str, Plain]] = {}
    for path, attributes in after.by_module.items():
        for name, value in attributes.items():
            if isinstance(value, torch.Tensor) or _same(before.by_module[path], name, value):
                continue
            if not isinstance(value, _PLAIN):
                raise CannotShare(
                    f"loading gave '{path}' an attribute '{name}' of type {type(value).__name__}, "
                    "which a follower cannot get"
                )
            found.setdefault(path, {})[name] = value
    return found


def apply_marks(module: nn.Module, marks: Mapping[str, Mapping[str, Plain]]) -> None:
    """Give a module the attributes that loading would have given it."""
    parts = dict(module.named_modules())
    for path, attributes in marks.items():
        for name, value in attributes.items():
            setattr(parts[path], name, value)


def _same(before: Mapping[str, object], name: str, value: object) -> bool:
    if name not in before:
        return False
    old = before[name]
    return old is value or (type(old) is type(value) and isinstance(value, _PLAIN) and old == value)
