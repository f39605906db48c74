"""Grammars over a vocabulary of ours: only what the text will show, and only valid JSON."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("sglang")

from omni_runtime.sglang_bridge.grammars import (
    MOST_COMPILED,
    Grammars,
    UnservedGrammarBackend,
    grammars_of,
)

# SGLang passes an argument that xgrammar no longer needs.
pytestmark = pytest.mark.filterwarnings("ignore:max_rollback_tokens:DeprecationWarning")

END, SPECIAL = 256, 257
PIECES = [bytes([byte]) for byte in range(256)] + [b"", b""]
WORD = {"type": "string", "maxLength": 3}
FREE = {
    "type": "triggered_tags",
    "triggers": ["<call>"],
    "tags": [
        {
            "type": "tag",
            "begin": "<call>",
            "content": {"type": "json_schema", "json_schema": WORD},
            "end": "</call>",
        }
    ],
}


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(PIECES, frozenset({END}), 2)


def takes(grammar: Any, text: bytes, end: bool = True) -> bool:
    matcher = grammar.copy().matcher
    return all(map(matcher.accept_token, [*text, *([END] if end else [])]))


def test_a_string_of_bounded_length_holds_no_control_characters(grammars: Grammars) -> None:
    word = grammars.dispatch_json(json.dumps(WORD))
    assert takes(word, b'"abc"')
    assert takes(word, '"é"'.encode())
    for wrong in (b'"a\tb"', b'"a\x01"', b'"a\n"', b'"abcd"', b'"abc'):
        assert not takes(word, wrong)


def test_a_special_token_is_no_text(grammars: Grammars) -> None:
    word = grammars.dispatch_json(json.dumps(WORD))
    matcher = word.copy().matcher
    assert matcher.accept_token(ord('"'))
    assert not matcher.accept_token(SPECIAL)


def test_blanks_between_the_parts_come_to_an_end(grammars: Grammars) -> None:
    pair = grammars.dispatch_json(json.dumps({"type": "array", "items": WORD, "minItems": 1}))
    assert takes(pair, b'[ \n"a"]')
    assert not takes(pair, b'[ \n "a"]')


def test_text_around_free_calls_may_hold_tabs(grammars: Grammars) -> None:
    tag = json.dumps({"type": "structural_tag", "format": FREE})
    assert takes(grammars.dispatch_structural_tag(tag), b'all:\n\tmake <call>"a"</call>\t')


def test_only_the_latest_grammars_are_kept(grammars: Grammars) -> None:
    value = grammars.dispatch_json(json.dumps(WORD))
    for number in range(MOST_COMPILED + 3):
        grammars.set_cache(("json", str(number)), value)
    assert len(grammars.cache) == MOST_COMPILED
    assert ("json", "2") not in grammars.cache


def test_another_backend_is_refused_at_the_start() -> None:
    def made(name: str | None) -> object:
        args: Any = SimpleNamespace(grammar_backend=name, constrained_json_max_whitespace_cnt=None)
        return grammars_of(args, PIECES, frozenset({END}))

    assert made("none") is None
    assert isinstance(made("xgrammar"), Grammars)
    with pytest.raises(UnservedGrammarBackend, match=r"engine.grammar_backend .* 'outlines'"):
        made("outlines")
