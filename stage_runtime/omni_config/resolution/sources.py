"""Where settings come from, and which source wins.

A source yields patches: one value for one path. Precedence is a rank of three parts: the layer,
then how specific the write is inside its layer, then how deep the path is. Nothing else decides;
two different values of the same rank are refused by whoever merges them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from omni_config.resolution.grammar import Address


class Layer(IntEnum):
    """Layers from weakest to strongest."""

    DEFAULT = 0
    PROFILE = 1
    FILE = 2
    CLI = 3

    @property
    def label(self) -> str:
        return _LAYER_LABELS[self]


_LAYER_LABELS = {
    Layer.DEFAULT: "default layer",
    Layer.PROFILE: "profile layer",
    Layer.FILE: "file layer",
    Layer.CLI: "cli layer",
}


class Specificity(IntEnum):
    """How specific a write is inside its layer, weakest first."""

    BROADCAST = 0
    SHARED = 1
    EXPLICIT = 2


@dataclass(frozen=True, slots=True)
class Source:
    """Who wrote a value.

    Attributes: kind: `yaml file`, `profile`, `object`, `cli flag`, `cli dotted`, `override` or
        `model default`. origin: file name, flag, object or class. detail: finer place, such as
        `shared[0]`. line: line in the file, from 1. manager: field manager that wrote it, for an
        object on Kubernetes.
    """

    kind: str
    origin: str = ""
    detail: str = ""
    line: int | None = None
    manager: str | None = None

    def __str__(self) -> str:
        label = f"{self.kind} ({self.origin})" if self.origin else self.kind
        return f"{label} - {self.detail}" if self.detail else label

    @property
    def where(self) -> str:
        """The place a person looks at to change the value; empty when the value names it itself."""
        if self.line is not None:
            return f"{self.origin}:{self.line}"
        return self.origin if self.kind in ("yaml file", "profile", "object", "cli flag") else ""


@dataclass(frozen=True, slots=True)
class Patch:
    """One value for one path. `value` is as written; `read` is what the path's type makes of it."""

    address: Address
    value: object
    read: object
    source: Source
    layer: Layer
    specificity: Specificity = Specificity.EXPLICIT

    @property
    def rank(self) -> tuple[int, int, int]:
        return (self.layer, self.specificity, len(self.address.path))
