"""What a request says about the form of its answer: read, or refused by the name of the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omni_models.structured.wishes import (
    ANY_OBJECT,
    MAX_SCHEMA_BYTES,
    MAX_TOOLS,
    Structure,
    Tool,
    structure_of,
)
from omni_wire.errors import InvalidRequest

SCHEMA = json.dumps({"type": "object", "properties": {"b": {}, "a": {}}})
WEATHER = {"name": "weather", "description": "Tells it.", "parameters_json": SCHEMA}
TOOLS = [WEATHER, {"name": "time", "strict": True}]
DEEP = "[" * 40 + "]" * 40


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ({}, Structure()),
        ({"response_format": {"type": "text"}}, Structure()),
        ({"response_format": {"type": "json_object"}}, Structure(ANY_OBJECT)),
        (
            {"response_format": {"type": "json_schema", "schema_json": SCHEMA}},
            Structure(SCHEMA),
        ),
        ({"tools": TOOLS, "tool_choice": "none"}, Structure()),
        (
            {
                "tools": TOOLS,
                "tool_choice": "none",
                "response_format": {"type": "json_schema", "schema_json": SCHEMA},
            },
            Structure(SCHEMA),
        ),
    ],
)
def test_answers_without_calls(params: dict[str, Any], wanted: Structure) -> None:
    assert structure_of(params) == wanted


def test_tools_are_free_to_be_called_unless_something_else_is_said() -> None:
    weather, time = Tool("weather", "Tells it.", SCHEMA), Tool("time", strict=True)
    both = (weather, time)
    assert structure_of({"tools": TOOLS}) == Structure(None, both, "auto")
    forced = structure_of({"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False})
    assert forced == Structure(None, both, "required", parallel=False)
    named = structure_of({"tools": TOOLS, "tool_choice": {"name": "time"}})
    assert (named.choice, named.named, named.callable) == ("named", "time", (time,))


def test_a_tool_reaches_the_chat_template_in_openai_s_shape_and_order() -> None:
    (weather, time) = structure_of({"tools": TOOLS}).tools
    assert time.templated() == {"type": "function", "function": {"name": "time"}}
    function = weather.templated()["function"]
    assert list(function) == ["name", "description", "parameters"]
    assert list(function["parameters"]["properties"]) == ["b", "a"]


@pytest.mark.parametrize(
    ("params", "field", "problem"),
    [
        ({"response_format": "json"}, "response_format", "type"),
        ({"response_format": {"type": "xml"}}, "response_format", "json_schema"),
        (
            {"response_format": {"type": "json_object", "schema_json": SCHEMA}},
            "response_format",
            "takes no schema",
        ),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema.schema",
            "NoneType",
        ),
        (
            {"response_format": {"type": "json_schema", "schema_json": "{"}},
            "response_format.json_schema.schema",
            "is no JSON",
        ),
        (
            {"response_format": {"type": "json_schema", "schema_json": "[]"}},
            "response_format.json_schema.schema",
            "JSON object",
        ),
        (
            {"response_format": {"type": "json_schema", "schema_json": DEEP}},
            "response_format.json_schema.schema",
            "nested deeper",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "schema_json": " " * MAX_SCHEMA_BYTES + "{}",
                }
            },
            "response_format.json_schema.schema",
            "longer",
        ),
        (
            {"tools": TOOLS, "response_format": {"type": "json_object"}},
            "response_format",
            "tool_choice is 'none'",
        ),
        ({"tools": {}}, "tools", "a list"),
        ({"tools": [{}]}, "tools[0].function.name", "letters"),
        ({"tools": [{"name": "no space"}]}, "tools[0].function.name", "letters"),
        ({"tools": [{"name": "a" * 65}]}, "tools[0].function.name", "64"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name", "repeats"),
        ({"tools": [{"name": "a", "strict": "yes"}]}, "tools[0].function", "strict"),
        ({"tools": [{"name": f"f{n}"} for n in range(MAX_TOOLS + 1)]}, "tools", "at most"),
        (
            {"tools": [{"name": "a", "parameters_json": DEEP}]},
            "tools[0].function.parameters",
            "nested deeper",
        ),
        ({"tool_choice": "required"}, "tool_choice", "no tools"),
        ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice", "required"),
        ({"tools": TOOLS, "tool_choice": {"name": "tme"}}, "tool_choice", "weather, time"),
        ({"tools": TOOLS, "parallel_tool_calls": 1}, "parallel_tool_calls", "true or false"),
    ],
)
def test_what_means_nothing_is_refused_by_its_path(
    params: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(InvalidRequest, match=problem) as refusal:
        structure_of(params)
    assert refusal.value.details["field"] == field


def test_brackets_inside_of_texts_nest_nothing() -> None:
    schema = json.dumps({"const": '"\\' + "[" * 99})
    form = {"type": "json_schema", "schema_json": schema}
    assert structure_of({"response_format": form}).schema == schema
