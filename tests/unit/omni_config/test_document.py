"""Reading a file: every value has a line, and no file can be read two ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from omni_config.errors import ConfigError
from omni_config.resolution.document import parse_document, read_document


def test_each_value_knows_its_line_and_its_spelling() -> None:
    document = parse_document("a: 1\nb:\n  c: 0x10\n  d: [x,\n    y]\n", "f.yaml")
    assert document.body == {"a": 1, "b": {"c": 16, "d": ["x", "y"]}}
    assert document.line_of(("b", "c")) == 3
    assert document.marks["b", "c"].text == "0x10"
    assert document.line_of(("b", "d", 1)) == 5
    assert document.line_of(("b", "nowhere")) == 2


def test_merge_keys_fill_what_the_mapping_leaves_open() -> None:
    document = parse_document("base: &b {x: 1, y: 2}\nmine:\n  <<: *b\n  y: 3\n", "f.yaml")
    assert document.body["mine"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("a: 1\na: 2\n", "duplicate mapping key 'a'", id="a key twice"),
        pytest.param("a: {b: 1, b: 1}\n", "duplicate mapping key 'b'", id="even of equal value"),
        pytest.param("a: &a\n  b: *a\n", "an alias contains itself", id="an alias in itself"),
        pytest.param("{[1]: 2}", "key must be a single word", id="a list as key"),
        pytest.param("a: {<<: 5}", "merges mappings only", id="merging a number"),
        pytest.param("- a\n", "must contain a mapping", id="a list"),
        pytest.param("", "must contain a mapping", id="nothing"),
        pytest.param("a: 'b", "is not valid YAML", id="an open quote"),
        pytest.param("a: !!python/object:os.system x", "is not valid YAML", id="a Python tag"),
        pytest.param("a: 1\n---\nb: 2\n", "is not valid YAML", id="two documents"),
        pytest.param("a: 2026-99-99", "'2026-99-99' is no value: month", id="a date of no day"),
        pytest.param(f"a: {'9' * 5000}", "is no value", id="an integer without end"),
        pytest.param(f"a: {'[' * 90}{']' * 90}", "nested deeper than 64", id="nesting"),
    ],
)
def test_a_file_that_could_be_misread_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_document(text, "f.yaml")
    assert says in str(refused.value)
    assert "f.yaml" in str(refused.value)


def test_aliases_cannot_expand_without_bound() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ConfigError, match="after expanding aliases"):
        parse_document("\n".join(lines), "f.yaml")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml' does not exist"):
        read_document(tmp_path / "missing.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_document(binary)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_document(tmp_path)
