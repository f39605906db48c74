"""Forms of answers become grammars of xgrammar's, and what it cannot keep is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("sglang")

import xgrammar

from omni_models.structured.grammars import grammar_of
from omni_models.structured.wishes import Structure, structure_of
from omni_wire.errors import InvalidRequest

QWEN = "qwen25"
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Kyiv"]}},
    "required": ["city"],
    "additionalProperties": False,
}
OSLO = '<tool_call>\n{"name":"weather", "arguments":{"city": "Oslo"}}\n</tool_call>'
ELSEWHERE = '<tool_call>\n{"name":"weather", "arguments":{"town": 3}}\n</tool_call>'
TIME = '<tool_call>\n{"name":"time", "arguments":{}}\n</tool_call>'


def calling(choice: object, *, strict: bool = False, **more: object) -> Structure:
    weather = {"name": "weather", "parameters_json": json.dumps(CITY), "strict": strict}
    return structure_of({"tools": [weather, {"name": "time"}], "tool_choice": choice, **more})


def accepted(structure: Structure, answers: Sequence[str]) -> list[bool]:
    """Return which answers the grammar takes as a whole."""
    grammar = grammar_of(structure, QWEN)
    assert grammar is not None
    info = xgrammar.TokenizerInfo(
        [bytes([byte]) for byte in range(256)] + [b"end"], stop_token_ids=[256]
    )
    compiler = xgrammar.GrammarCompiler(info)
    compiled = (
        compiler.compile_json_schema(grammar.text)
        if grammar.kind == "json_schema"
        else compiler.compile_structural_tag(grammar.text)
    )
    found = []
    for answer in answers:
        matcher = xgrammar.GrammarMatcher(compiled)
        found.append(matcher.accept_string(answer) and matcher.accept_token(256))
    return found


def test_free_answers_and_free_calls_have_no_grammar() -> None:
    assert grammar_of(Structure(), QWEN) is None
    assert grammar_of(calling("auto"), QWEN) is None


def test_a_schema_is_kept_to() -> None:
    structure = Structure(json.dumps(CITY))
    assert accepted(structure, ['{"city": "Oslo"}', '{"city": "Rome"}', "{}", "Oslo"]) == [
        True,
        False,
        False,
        False,
    ]


def test_a_call_that_must_come_comes_and_nothing_else() -> None:
    answers = [OSLO, TIME, f"{OSLO}\n{TIME}", f"Well. {OSLO}", f"{OSLO} So.", "", ELSEWHERE]
    assert accepted(calling("required"), answers) == [True, True, True, *[False] * 4]
    alone = calling("required", parallel_tool_calls=False)
    assert accepted(alone, answers) == [True, True, *[False] * 5]
    assert accepted(calling({"name": "time"}), answers) == [False, True, *[False] * 5]


def test_free_calls_of_strict_tools_are_kept_to_their_schema() -> None:
    answers = ["Well.", f"Well. {OSLO}", f"{OSLO}\n{TIME} So.", ELSEWHERE]
    assert accepted(calling("auto", strict=True), answers) == [True, True, True, False]
    alone = calling("auto", strict=True, parallel_tool_calls=False)
    assert accepted(alone, answers) == [True, True, False, False]


def unkept(strict: bool) -> Structure:
    schema = json.dumps({"type": "object", "properties": {"n": {"multipleOf": 3}}})
    tool = {"name": "weather", "parameters_json": schema, "strict": strict}
    return structure_of({"tools": [tool], "tool_choice": "required"})


def test_arguments_of_a_tool_that_is_not_strict_may_be_any_object_where_need_be() -> None:
    assert accepted(unkept(strict=False), [ELSEWHERE]) == [True]
    with pytest.raises(InvalidRequest, match="multipleOf") as refusal:
        grammar_of(unkept(strict=True), QWEN)
    assert refusal.value.details["field"] == "tools[0].function.parameters"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "strin"}, 'cannot be kept to: Unsupported type "strin"'),
        ({"$ref": "#/$defs/x"}, "Cannot find field"),
        ({"type": "string", "pattern": "(["}, "Unclosed"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems would be ignored"),
        ({"enum": []}, "must not be empty"),
        ({"const": "\x00"}, "NUL"),
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused_with_what_xgrammar_says(
    schema: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        grammar_of(Structure(json.dumps(schema)), QWEN)
    assert problem in refusal.value.message
    assert "/project" not in refusal.value.message
    assert refusal.value.details["field"] == "response_format.json_schema.schema"


def test_a_format_without_a_grammar_cannot_be_forced() -> None:
    with pytest.raises(InvalidRequest, match="tool_choice"):
        grammar_of(calling("required"), "pythonic")
