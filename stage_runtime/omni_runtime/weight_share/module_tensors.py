"""The tensors of a module: where it holds them, and how others take their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from omni_runtime.weight_share.errors import CannotShare
from omni_runtime.weight_share.manifest import Blueprint, Layout, SharedTensor, Slot

_CONTAINERS = (list, tuple, dict, set)
_OF_TORCH = frozenset(vars(nn.Module()))
"""What every module has; its tensors are looked at by kind."""


def held_tensors(module: nn.Module) -> Iterator[tuple[Slot, torch.Tensor]]:
    """Yield each place that holds a tensor. A submodule with several paths is met once."""
    for path, part in module.named_modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                yield Slot(path, name, "parameter"), parameter
        for name, buffer in part._buffers.items():
            if buffer is not None:
                yield Slot(path, name, "buffer"), buffer
        for name, value in own_attributes(part):
            if isinstance(value, torch.Tensor):
                yield Slot(path, name, "attribute"), value


def own_attributes(part: nn.Module) -> Iterator[tuple[str, object]]:
    """Yield the attributes that the module's author gave it."""
    for name, value in vars(part).items():
        if name not in _OF_TORCH:
            yield name, value


def hidden_tensors(module: nn.Module) -> Iterator[str]:
    """Yield the places of tensors inside lists, mappings and the like, which nothing replaces."""
    for path, part in module.named_modules():
        for name, value in own_attributes(part):
            if isinstance(value, _CONTAINERS) and any(_tensors_in(value)):
                yield str(Slot(path, name, "attribute"))


def blueprint_of(module: nn.Module) -> Blueprint:
    """Return the form of every tensor of a module."""
    return {slot: layout_of(tensor) for slot, tensor in held_tensors(module)}


def layout_of(tensor: torch.Tensor) -> Layout:
    """Return the form of a tensor."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Layout(dtype, tuple(tensor.shape), tuple(tensor.stride()))


def view_of(storage: torch.UntypedStorage, layout: Layout, offset: int) -> torch.Tensor:
    """Return a tensor of a form on a storage."""
    dtype: torch.dtype = getattr(torch, layout.dtype)
    empty = torch.empty(0, dtype=dtype, device=storage.device)
    return empty.set_(storage, offset, layout.shape, layout.stride)


@dataclass(frozen=True, slots=True)
class Collected:
    """The tensors of a loaded module, each once, and what they lie in.

    Attributes:
        shared: one entry per tensor object, with all its places.
        objects: the tensor of each entry.
        sizes: bytes of each storage, by number.
        devices: kind of device of each storage, by number.
    """

    shared: tuple[SharedTensor, ...]
    objects: tuple[torch.Tensor, ...]
    sizes: Mapping[int, int]
    devices: Mapping[int, str]

    def on(self, number: int) -> list[tuple[SharedTensor, torch.Tensor]]:
        """Return the tensors on a storage."""
        pairs = zip(self.shared, self.objects, strict=True)
        return [(entry, tensor) for entry, tensor in pairs if entry.storage == number]

    def storage(self, number: int) -> torch.UntypedStorage:
        """Return a storage. Only its tensors keep it, so that it goes when they move."""
        return self.on(number)[0][1].untyped_storage()


def collect(module: nn.Module) -> Collected:
    """Gather the tensors of a loaded module.

    A storage with a parameter on it is shared, views of it included. Everything else may be written
    to while the module works, so each follower has a copy of it.

    Raises:
        CannotShare: a tensor has no memory of the usual kind, or is where no other can be put.
    """
    hidden = next(hidden_tensors(module), None)
    if hidden is not None:
        raise CannotShare(f"{hidden} holds tensors in a container, where no other can be put")
    found: dict[int, tuple[torch.Tensor, list[Slot]]] = {}
    for slot, tensor in held_tensors(module):
        if tensor.layout is not torch.strided or tensor.device.type not in ("cpu", "cuda"):
            raise CannotShare(f"{slot} is a {tensor.layout} tensor on {tensor.device}")
        found.setdefault(id(tensor), (tensor, []))[1].append(slot)
    numbers: dict[object, int] = {}
    sizes: dict[int, int] = {}
    devices: dict[int, str] = {}
    of_parameters: set[int] = set()
    for tensor, slots in found.values():
        storage = tensor.untyped_storage()
        number = numbers.setdefault(_identity(storage), len(numbers))
        sizes[number], devices[number] = storage.nbytes(), storage.device.type
        if any(slot.kind == "parameter" for slot in slots):
            of_parameters.add(number)
    return Collected(
        tuple(
            SharedTensor(
                slots=tuple(slots),
                layout=layout_of(tensor),
                storage=(number := numbers[_identity(tensor.untyped_storage())]),
                offset=tensor.storage_offset(),
                private=number not in of_parameters,
            )
            for tensor, slots in found.values()
        ),
        tuple(tensor for tensor, _ in found.values()),
        sizes,
        devices,
    )


def install(
    module: nn.Module,
    shared: Sequence[SharedTensor],
    storages: Mapping[int, torch.UntypedStorage],
) -> None:
    """Put the leader's tensors into a module that has none of its own.

    Raises:
        CannotShare: the module lacks a submodule, or keeps a tensor that the leader has not.
    """
    parts = dict(module.named_modules())
    wanted = {slot for entry in shared for slot in entry.slots}
    for slot, _ in list(held_tensors(module)):
        # Post-processing may have dropped a parameter, or made it a buffer.
        if slot not in wanted:
            delattr(parts[slot.module], slot.name)
    for entry in shared:
        tensor = view_of(storages[entry.storage], entry.layout, entry.offset)
        if entry.private:
            tensor = tensor.clone(memory_format=torch.preserve_format)
        parameter = nn.Parameter(tensor, requires_grad=False)
        for slot in entry.slots:
            if slot.module not in parts:
                raise CannotShare(f"the leader's {slot} is in a submodule that is not here")
            _put(parts[slot.module], slot, parameter if slot.kind == "parameter" else tensor)
    left = next((str(slot) for slot, tensor in held_tensors(module) if tensor.is_meta), None)
    left = left or next(hidden_tensors(module), None)
    if left is not None:
        raise CannotShare(f"{left} got no memory from the leader")


def _put(part: nn.Module, slot: Slot, tensor: torch.Tensor) -> None:
    if slot.kind == "parameter":
        part._parameters[slot.name] = tensor
    elif slot.kind == "buffer":
        part._buffers[slot.name] = tensor
    else:
        vars(part)[slot.name] = tensor


def _identity(storage: torch.UntypedStorage) -> object:
    """Return what tensors of one storage have alike."""
    # Storages without bytes have no address; nothing is lost when they are not told apart.
    return (str(storage.device), storage.data_ptr(), storage.nbytes())


def _tensors_in(value: object, depth: int = 2) -> Iterator[bool]:
    if isinstance(value, torch.Tensor):
        yield True
    elif depth and isinstance(value, _CONTAINERS):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors_in(item, depth - 1)
