"""What a leader says of its weights survives the wire, and differences are named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omni_runtime.weight_share.errors import WeightsDiffer
from omni_runtime.weight_share.manifest import (
    Layout,
    Manifest,
    SharedTensor,
    Slot,
    decode,
    encode,
    from_json,
    require_equal,
    to_json,
)

WEIGHT = Slot("layers.0.mlp", "weight", "parameter")
TABLE = Slot("", "cos", "buffer")
FORM = Layout("bfloat16", (4, 2), (2, 1))
FACTS = {"configuration": "c", "torch": "2"}
MANIFEST = Manifest(
    facts=FACTS,
    blueprint={WEIGHT: FORM, TABLE: Layout("float32", (3,), (1,))},
    tensors=(
        SharedTensor((WEIGHT, Slot("head", "weight", "parameter")), FORM, 0, 0, private=False),
        SharedTensor((TABLE,), Layout("float32", (3,), (1,)), 1, 2, private=True),
    ),
    marks={"layers.0.mlp": {"packed": True, "scale": 0.5, "kind": None, "order": (2, None)}},
)


def test_a_manifest_comes_over_the_wire_as_it_was() -> None:
    assert from_json(decode(encode(to_json(MANIFEST)))) == MANIFEST


def test_equal_modules_of_equal_processes_may_share() -> None:
    require_equal(MANIFEST, FACTS, MANIFEST.blueprint)


def test_a_fact_that_differs_is_named_with_both_values() -> None:
    with pytest.raises(WeightsDiffer, match="its torch is '2', this one's '3'"):
        require_equal(MANIFEST, {**FACTS, "torch": "3"}, MANIFEST.blueprint)


def test_a_tensor_of_another_form_is_named_with_both_forms() -> None:
    other = {**MANIFEST.blueprint, WEIGHT: replace(FORM, shape=(8, 2))}
    with pytest.raises(WeightsDiffer) as refusal:
        require_equal(MANIFEST, FACTS, other)
    assert str(refusal.value).endswith(
        "parameter layers.0.mlp.weight is bfloat16 [4, 2] with strides [2, 1] there and "
        "bfloat16 [8, 2] with strides [2, 1] here"
    )


@pytest.mark.parametrize("here", [False, True], ids=["there", "here"])
def test_a_tensor_that_one_side_lacks_is_named(here: bool) -> None:
    surplus = Slot("bias", "value", "parameter")
    more = {**MANIFEST.blueprint, surplus: FORM}
    manifest = replace(MANIFEST, blueprint=MANIFEST.blueprint if here else more)
    with pytest.raises(WeightsDiffer, match=r"parameter bias\.value is .*absent"):
        require_equal(manifest, FACTS, more if here else MANIFEST.blueprint)
