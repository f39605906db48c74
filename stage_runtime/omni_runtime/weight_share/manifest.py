"""What a leader says of its weights, as plain data. Pure: needs no torch.

A blueprint lists the tensors of a module as it was built, before anything was loaded: two processes
with equal blueprints would load the same. The manifest adds what loading made of them, which may be
other tensors of other shapes, and where in shared memory each lies.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from omni_runtime.weight_share.errors import WeightsDiffer

Kind = Literal["parameter", "buffer", "attribute"]
Scalar = bool | int | float | str | None
Plain = Scalar | tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Form of one tensor.

    Attributes:
        dtype: torch's name without its module, such as `bfloat16`.
        stride: in elements.
    """

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)} with strides {list(self.stride)}"


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a module holds a tensor.

    Attributes:
        module: dotted path of the submodule, empty for the root.
        name: of the parameter, the buffer or the plain attribute.
    """

    module: str
    name: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.module}.{self.name}" if self.module else self.name


Blueprint = Mapping[Slot, Layout]


@dataclass(frozen=True, slots=True)
class SharedTensor:
    """One tensor object and every place that holds it: tied weights have several.

    Attributes:
        storage: number of the storage in shared memory.
        offset: of its first element in the storage, in elements.
        private: a follower takes a copy, because the module may write to it.
    """

    slots: tuple[Slot, ...]
    layout: Layout
    storage: int
    offset: int
    private: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything a follower has to know.

    Attributes:
        facts: what must be equal, by name: configuration, checkpoint, versions, device.
        blueprint: tensors of the module before loading.
        tensors: tensors of the module after loading.
        marks: plain attributes that loading changed, by path and name; see `marks`.
    """

    facts: Mapping[str, str]
    blueprint: Blueprint
    tensors: tuple[SharedTensor, ...]
    marks: Mapping[str, Mapping[str, Plain]]


def require_equal(manifest: Manifest, facts: Mapping[str, str], blueprint: Blueprint) -> None:
    """Compare what the leader loaded with what this process would load.

    Raises:
        WeightsDiffer: naming the first fact or tensor that differs.
    """
    difference = next(_differences(manifest, facts, blueprint), None)
    if difference is not None:
        raise WeightsDiffer(f"the leader holds other weights than this process: {difference}")


def _differences(
    manifest: Manifest, facts: Mapping[str, str], blueprint: Blueprint
) -> Iterator[str]:
    for name in dict.fromkeys((*manifest.facts, *facts)):
        its, own = manifest.facts.get(name), facts.get(name)
        if its != own:
            yield f"its {name} is {its!r}, this one's {own!r}"
    for slot in dict.fromkeys((*manifest.blueprint, *blueprint)):
        theirs, ours = manifest.blueprint.get(slot), blueprint.get(slot)
        if theirs != ours:
            yield (f"{slot.kind} {slot} is {theirs or 'absent'} there and {ours or 'absent'} here")


def to_json(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest as JSON can hold it."""
    return {
        "facts": dict(manifest.facts),
        "blueprint": [
            [asdict(slot), asdict(layout)] for slot, layout in manifest.blueprint.items()
        ],
        "tensors": [asdict(tensor) for tensor in manifest.tensors],
        "marks": {path: dict(marks) for path, marks in manifest.marks.items()},
    }


def from_json(data: Mapping[str, Any]) -> Manifest:
    """Return the manifest that `to_json` wrote."""
    return Manifest(
        facts=data["facts"],
        blueprint={_slot(slot): _layout(layout) for slot, layout in data["blueprint"]},
        tensors=tuple(_tensor(tensor) for tensor in data["tensors"]),
        marks={path: _marks(marks) for path, marks in data["marks"].items()},
    )


def encode(data: Mapping[str, Any]) -> bytes:
    """Return a message as bytes."""
    return json.dumps(data, separators=(",", ":")).encode()


def decode(data: bytes) -> Mapping[str, Any]:
    """Return the message that `encode` wrote.

    Raises:
        ValueError: it is none.
    """
    message = json.loads(data)
    if not isinstance(message, dict):
        raise ValueError(f"a message is an object, not {type(message).__name__}")
    return message


def _tensor(data: Mapping[str, Any]) -> SharedTensor:
    return SharedTensor(
        slots=tuple(_slot(slot) for slot in data["slots"]),
        layout=_layout(data["layout"]),
        storage=data["storage"],
        offset=data["offset"],
        private=data["private"],
    )


def _marks(data: Mapping[str, Scalar | list[Scalar]]) -> dict[str, Plain]:
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
    }


def _slot(data: Mapping[str, Any]) -> Slot:
    return Slot(data["module"], data["name"], data["kind"])


def _layout(data: Mapping[str, Sequence[int] | str]) -> Layout:
    return Layout(
        cast("str", data["dtype"]),
        tuple(cast("Sequence[int]", data["shape"])),
        tuple(cast("Sequence[int]", data["stride"])),
    )
