"""Trees of values to protobuf and back, with tensors beside the header instead of inside it.

Encoding is strict in both directions: what cannot come back as it went is refused by name when it
is sent, and a header that no encoder writes is refused when it arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from omni_wire.arrays import array_to_numpy, decode_tensor, encode_tensor, map_arrays
from omni_wire.errors import WireFormatError
from omni_wire.messages import Tree
from omni_wire.payload import PayloadReader, PayloadWriter
from omni_wire.tensor import ArrayLike, Tensor
from omni_wire.v1 import tensor_pb2 as pb

# A level takes up to three nested messages and protobuf parses at most 100.
MAX_DEPTH = 24
# Longer text and bytes lie in the payload, so that the header stays small.
_INLINE_BYTES = 4096
_INT64_END = 1 << 63


def encode_tree(tree: Tree, node: pb.Tree, payload: PayloadWriter | None) -> None:
    """Write a tree into an empty `node`, its tensors into `payload` (inline where it is None).

    Raises:
        WireFormatError: a value, key or dtype the wire does not carry, or too deep nesting; the
            message names the place.
        FrameTooLarge: the payload's limit is exceeded.
    """
    _TreeEncoder(payload).encode(tree, node, "data", 0)


def encode_map(tree: Mapping[str, Tree], node: pb.Map, payload: PayloadWriter, path: str) -> None:
    """Write named trees into an empty `node`, called `path` in errors; raises as `encode_tree`."""
    _TreeEncoder(payload).encode_map(tree, node, path, 0)


def decode_map(node: pb.Map, payload: PayloadReader) -> Mapping[str, Tree]:
    """The named trees in `node`; raises as `decode_tree`."""
    return _TreeDecoder(payload).entries(node)


def decode_tree(node: pb.Tree, payload: PayloadReader | None) -> Tree:
    """The tree in `node`; its tensors are views of `payload` or of the node's own bytes.

    Raises:
        WireFormatError: the node is not what `encode_tree` writes.
    """
    return _TreeDecoder(payload).decode(node)


def to_proto(tree: Tree) -> pb.Tree:
    """A tree as one self-contained message, tensors inline; raises as `encode_tree`."""
    node = pb.Tree()
    encode_tree(tree, node, None)
    return node


def from_proto(node: pb.Tree) -> Tree:
    """The tree in a self-contained message; raises as `decode_tree`."""
    return decode_tree(node, None)


def to_numpy(tree: Tree) -> Tree:
    """The same tree with every array as a numpy array; bfloat16 is widened to float32."""
    return map_arrays(tree, array_to_numpy)


class _TreeEncoder:
    def __init__(self, payload: PayloadWriter | None) -> None:
        self._payload = payload

    def encode(self, tree: Tree, node: pb.Tree, path: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise WireFormatError(f"{path}: nested deeper than {MAX_DEPTH} levels")
        if isinstance(tree, str | bytes):
            self._encode_text(tree, node, path)
        elif isinstance(tree, bool | int | float) and not isinstance(tree, np.generic):
            _encode_number(tree, node, path)
        elif isinstance(tree, Tensor | np.ndarray):
            self._encode_array(tree, node.tensor, path)
        elif isinstance(tree, Mapping):
            self.encode_map(tree, node.map, path, depth)
        elif isinstance(tree, list | tuple):
            target = node.tuple if isinstance(tree, tuple) else node.list
            self._encode_items(tree, target, path, depth)
        elif isinstance(tree, ArrayLike):
            self._encode_array(tree, node.tensor, path)
        elif tree is not None:
            raise WireFormatError(f"{path}: {type(tree).__name__} cannot be sent")

    def _encode_text(self, value: str | bytes, node: pb.Tree, path: str) -> None:
        try:
            raw = value.encode() if isinstance(value, str) else value
        except UnicodeEncodeError as error:
            raise WireFormatError(f"{path}: text that UTF-8 cannot hold") from error
        if self._payload is not None and len(raw) > _INLINE_BYTES:
            node.blob.offset = self._payload.add((raw,), len(raw))
            node.blob.length = len(raw)
            node.blob.text = isinstance(value, str)
        elif isinstance(value, str):
            node.text = value
        else:
            node.binary = value

    def encode_map(self, tree: Mapping[str, Tree], node: pb.Map, path: str, depth: int) -> None:
        node.SetInParent()
        for name, value in tree.items():
            entry = node.entries.add()
            try:
                entry.key = name
            except (TypeError, ValueError) as error:
                raise WireFormatError(f"{path}: key {name!r} is no text") from error
            self.encode(value, entry.value, f"{path}.{name}", depth + 1)

    def _encode_items(self, items: Sequence[Tree], node: pb.List, path: str, depth: int) -> None:
        node.SetInParent()
        kinds = set(map(type, items))
        try:
            if kinds == {int}:
                node.integers.extend(items)  # type: ignore[arg-type]
                return
            if kinds == {float}:
                node.numbers.extend(items)  # type: ignore[arg-type]
                return
            if kinds == {str} and sum(map(len, items)) <= _INLINE_BYTES:  # type: ignore[arg-type]
                node.texts.extend(items)  # type: ignore[arg-type]
                return
        except ValueError as error:
            raise WireFormatError(f"{path}: {error}") from error
        for index, item in enumerate(items):
            self.encode(item, node.items.add(), f"{path}[{index}]", depth + 1)

    def _encode_array(self, array: ArrayLike, node: pb.Tensor, path: str) -> None:
        try:
            encode_tensor(array, node, self._payload)
        except WireFormatError as error:
            raise WireFormatError(f"{path}: {error}") from error


def _encode_number(value: bool | int | float, node: pb.Tree, path: str) -> None:
    if isinstance(value, bool):
        node.boolean = value
    elif isinstance(value, float):
        node.number = value
    elif -_INT64_END <= value < _INT64_END:
        node.integer = value
    else:
        raise WireFormatError(f"{path}: integers have 64 bits")


class _TreeDecoder:
    def __init__(self, payload: PayloadReader | None) -> None:
        self._payload = payload

    def decode(self, node: pb.Tree) -> Tree:
        kind = node.WhichOneof("kind")
        if kind is None:
            return None
        nested = _NESTED.get(kind)
        if nested is None:
            scalar: Tree = getattr(node, kind)
            return scalar
        return nested(self, node)

    def as_tensor(self, node: pb.Tree) -> Tree:
        return decode_tensor(node.tensor, self._payload)

    def as_list(self, node: pb.Tree) -> Tree:
        return self._items(node.list)

    def as_tuple(self, node: pb.Tree) -> Tree:
        return (*self._items(node.tuple),)

    def _items(self, node: pb.List) -> list[Tree]:
        kinds = (node.items, node.integers, node.numbers, node.texts)
        if sum(map(bool, kinds)) > 1:
            raise WireFormatError("list with items of several kinds")
        if node.items:
            return [self.decode(item) for item in node.items]
        return [*node.integers, *node.numbers, *node.texts]

    def as_map(self, node: pb.Tree) -> Tree:
        return self.entries(node.map)

    def entries(self, node: pb.Map) -> dict[str, Tree]:
        decoded = {entry.key: self.decode(entry.value) for entry in node.entries}
        if len(decoded) != len(node.entries):
            raise WireFormatError("map with a key twice")
        return decoded

    def as_blob(self, node: pb.Tree) -> Tree:
        if self._payload is None:
            raise WireFormatError("blob without payload")
        raw = self._payload.blob(node.blob.offset, node.blob.length)
        if not node.blob.text:
            return raw
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise WireFormatError("text is no UTF-8") from error


_NESTED: Mapping[str, Callable[[_TreeDecoder, pb.Tree], Tree]] = {
    "tensor": _TreeDecoder.as_tensor,
    "list": _TreeDecoder.as_list,
    "tuple": _TreeDecoder.as_tuple,
    "map": _TreeDecoder.as_map,
    "blob": _TreeDecoder.as_blob,
}
