"""What loading leaves on a module beside tensors.

Post-processing of weights may repack them and note it, as a plain value that the forward pass
reads: on the layer, or on the helper that computes with it. A follower does not post-process, since
its tensors are the leader's result, so such notes are handed on. What is no plain value cannot be,
and is refused.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import nn

from omni_runtime.weight_share.errors import CannotShare
from omni_runtime.weight_share.manifest import Plain
from omni_runtime.weight_share.module_tensors import own_attributes

_PLAIN = (bool, int, float, str, type(None))
_NO_STATE = (type, types.ModuleType, types.FunctionType, types.MethodType, torch.Tensor, nn.Module)
_HELPER = ":"
"""Stands between the path of a submodule and the name of a helper that it holds."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of every submodule and of its helpers at one moment, by path.

    Objects are kept alive, so that another one cannot be taken for them.
    """

    by_path: Mapping[str, Mapping[str, object]]

    @classmethod
    def of(cls, module: nn.Module) -> Attributes:
        """Return the attributes of a module now."""
        return cls({path: dict(own) for path, own in _holders(module)})


def marks_since(before: Attributes, module: nn.Module) -> dict[str, dict[str, Plain]]:
    """Return the plain attributes that changed, by path and name.

    Raises:
        CannotShare: a submodule came or went, or another object took an attribute.
    """
    after = Attributes.of(module)
    moved = sorted(_submodules(before) ^ _submodules(after))
    if moved:
        raise CannotShare(f"loading added or removed the submodule '{moved[0]}'")
    found: dict[str, dict[str, Plain]] = {}
    for path, attributes in after.by_path.items():
        for name, value in attributes.items():
            if isinstance(value, torch.Tensor) or _same(before.by_path.get(path, {}), name, value):
                continue
            if not _is_plain(value):
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
        part, _, helper = path.partition(_HELPER)
        holder = getattr(parts[part], helper) if helper else parts[part]
        for name, value in attributes.items():
            setattr(holder, name, value)


def _holders(module: nn.Module) -> Iterator[tuple[str, Iterator[tuple[str, object]]]]:
    """Yield submodules, and the objects they hold, each with its attributes and met once."""
    met: set[int] = set()
    for path, part in module.named_modules():
        yield path, own_attributes(part)
        for name, value in own_attributes(part):
            has_state = hasattr(value, "__dict__") and not isinstance(value, _NO_STATE)
            if has_state and id(value) not in met:
                met.add(id(value))
                yield f"{path}{_HELPER}{name}", iter(vars(value).items())


def _submodules(attributes: Attributes) -> set[str]:
    return {path for path in attributes.by_path if _HELPER not in path}


def _same(before: Mapping[str, object], name: str, value: object) -> bool:
    if name not in before:
        return False
    old = before[name]
    return old is value or (type(old) is type(value) and _is_plain(value) and old == value)


def _is_plain(value: object) -> TypeGuard[Plain]:
    parts = value if isinstance(value, tuple) else (value,)
    return all(isinstance(part, _PLAIN) for part in parts)
