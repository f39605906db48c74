"""Trees of values come back as they went, or are refused by the place of what cannot be sent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni_wire.errors import FrameTooLarge, WireFormatError
from omni_wire.messages import Tree
from omni_wire.payload import PayloadReader, PayloadWriter
from omni_wire.trees import (
    MAX_DEPTH,
    decode_tree,
    encode_tree,
    from_proto,
    to_numpy,
    to_proto,
)
from omni_wire.v1 import tensor_pb2 as pb
from tests.support.trees import same, trees


def through_payload(tree: Tree, part_bytes: int) -> Tree:
    """Encode with the tensors beside the node, deliver in pieces, decode."""
    node, writer = pb.Tree(), PayloadWriter(1 << 20)
    encode_tree(tree, node, writer)
    raw = memoryview(b"".join(writer.views))
    assert len(raw) == writer.size
    pieces = [raw[i : i + part_bytes] for i in range(0, len(raw), part_bytes)] or [raw]
    copy = pb.Tree.FromString(node.SerializeToString())
    return to_numpy(decode_tree(copy, PayloadReader(pieces)))


@given(trees)
def test_a_tree_comes_back_as_it_went(tree: Tree) -> None:
    copy = pb.Tree.FromString(to_proto(tree).SerializeToString())
    assert same(to_numpy(from_proto(copy)), tree)


@given(trees, st.sampled_from([16, 48, 1 << 20]))
def test_tensors_beside_the_header_come_back_in_any_pieces(tree: Tree, part_bytes: int) -> None:
    assert same(through_payload(tree, part_bytes), tree)


@pytest.mark.parametrize("value", ["ä" * 9_000, b"\xff" * 9_000])
def test_long_text_and_bytes_stay_out_of_the_header(value: str | bytes) -> None:
    node = pb.Tree()
    encode_tree([value], node, PayloadWriter(1 << 20))
    assert node.ByteSize() < 100
    assert through_payload([value], 1 << 20) == [value]


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        pytest.param({"a": [1, {2}]}, r"data\.a\[1\]: set", id="foreign type"),
        pytest.param({"a": {1: 2}}, r"data\.a: key 1", id="key that is no text"),
        pytest.param([1 << 63], r"data: .*", id="packed integer over 64 bits"),
        pytest.param({"a": 1 << 63}, r"data\.a: integers", id="integer over 64 bits"),
        pytest.param(["\ud800"], r"data", id="half a surrogate pair"),
        pytest.param({"a": "\ud800"}, r"data\.a: text", id="half a surrogate pair in a map"),
        pytest.param({"\ud800": 1}, r"data: key", id="half a surrogate pair as key"),
        pytest.param({"a": np.zeros(2, "c8")}, r"data\.a: .*complex64", id="complex"),
        pytest.param(range(3), r"data: range", id="range"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_its_place(tree: Tree, problem: str) -> None:
    with pytest.raises(WireFormatError, match=problem):
        to_proto(tree)


def test_nesting_is_bounded_and_the_bound_can_be_used() -> None:
    def nested(levels: int) -> Tree:
        tree: Tree = "leaf"
        for level in range(levels):
            tree = {"next": tree} if level % 2 else [tree, None]
        return tree

    assert from_proto(pb.Tree.FromString(to_proto(nested(MAX_DEPTH)).SerializeToString()))
    with pytest.raises(WireFormatError, match="deeper"):
        to_proto(nested(MAX_DEPTH + 1))


def test_a_payload_over_the_limit_is_refused() -> None:
    with pytest.raises(FrameTooLarge, match="1024 bytes"):
        encode_tree([np.zeros(200), np.zeros(200)], pb.Tree(), PayloadWriter(1024))


def tensor(**fields: object) -> pb.Tree:
    return pb.Tree(tensor=pb.Tensor(**fields))  # type: ignore[arg-type]


FLOAT = pb.DTYPE_FLOAT32


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(tensor(dtype=FLOAT, shape=[3], offset=0), id="past the end"),
        pytest.param(tensor(dtype=FLOAT, shape=[1], offset=1 << 63), id="far past the end"),
        pytest.param(tensor(dtype=FLOAT, shape=[1 << 40, 1 << 40], offset=0), id="huge"),
        pytest.param(tensor(dtype=FLOAT, shape=[0, 1 << 62], offset=0), id="empty and huge"),
        pytest.param(tensor(dtype=FLOAT, shape=[1] * 17, offset=0), id="17 dimensions"),
        pytest.param(tensor(dtype=0, shape=[1], offset=0), id="no dtype"),
        pytest.param(tensor(dtype=99, shape=[1], offset=0), id="unknown dtype"),
        pytest.param(tensor(dtype=FLOAT, shape=[1], data=b"1234"), id="bytes in the header"),
        pytest.param(pb.Tree(blob=pb.Blob(offset=8, length=1)), id="blob past the end"),
        pytest.param(pb.Tree(blob=pb.Blob(length=2, text=True)), id="blob that is no text"),
        pytest.param(
            pb.Tree(list=pb.List(items=[pb.Tree(blob=pb.Blob(length=8))] * 2)), id="blob twice"
        ),
        pytest.param(pb.Tree(list=pb.List(integers=[1], texts=["a"])), id="list of two kinds"),
        pytest.param(
            pb.Tree(map=pb.Map(entries=[pb.Map.Entry(key="a")] * 2)), id="map with a key twice"
        ),
    ],
)
def test_a_node_nobody_writes_is_refused(node: pb.Tree) -> None:
    with pytest.raises(WireFormatError):
        decode_tree(node, PayloadReader([memoryview(b"\xff" * 8)]))


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(tensor(dtype=FLOAT, shape=[2], data=b"1234"), id="too few bytes"),
        pytest.param(tensor(dtype=FLOAT, shape=[1], offset=0), id="offset without a payload"),
        pytest.param(pb.Tree(blob=pb.Blob(length=1)), id="blob without a payload"),
    ],
)
def test_an_inline_node_nobody_writes_is_refused(node: pb.Tree) -> None:
    with pytest.raises(WireFormatError):
        from_proto(node)
