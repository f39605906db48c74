"""YAML that another reader reads as it was meant."""

from __future__ import annotations

import pytest
import yaml

from omni_operator.yaml_text import to_yaml


@pytest.mark.parametrize("text", ["96e04582", "1E5", "-3e7", "0e0", "1e+10"])
def test_a_hash_that_looks_like_a_number_stays_a_string_for_everybody(text: str) -> None:
    assert to_yaml({"hash": text}) == f"hash: '{text}'\n"


def test_numbers_and_plain_words_need_no_quotes() -> None:
    assert to_yaml({"b": 1.5, "a": "e5a1", "c": 12}) == "b: 1.5\na: e5a1\nc: 12\n"


def test_repeated_parts_are_written_out() -> None:
    part = {"x": [1]}
    text = to_yaml({"a": part, "b": part}, {"c": part})
    assert "&" not in text
    assert list(yaml.safe_load_all(text)) == [{"a": part, "b": part}, {"c": part}]
