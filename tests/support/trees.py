"""Any tree the wire carries, and whether two are the same."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from omni_wire.messages import Tree

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats()
    | text
    | st.binary(max_size=20)
    | hnp.arrays(np.float32, hnp.array_shapes(max_dims=2, min_side=0))
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(text, inner, max_size=4)
        | st.lists(st.integers(-5, 5), min_size=1, max_size=9)
        | st.lists(st.floats(), min_size=1, max_size=9)
        | st.lists(text, min_size=1, max_size=9)
    ),
    max_leaves=20,
)


def same(one: Tree, other: Tree) -> bool:
    """Equal in value and in kind, NaN and the sign of zero included."""
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and one.dtype == other.dtype
            and np.array_equal(one, other, equal_nan=True)
        )
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.copysign(1, one) == math.copysign(1, other) and (
            one == other or (math.isnan(one) and math.isnan(other))
        )
    return one == other
