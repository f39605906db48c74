"""What a request says about the form of its answer. Pure.

Schemas travel as JSON text: the order of their properties is the order in which they are answered,
and a map between stages keeps none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from omni_wire.errors import InvalidRequest

Params: TypeAlias = Mapping[str, object]
Choice: TypeAlias = Literal["none", "auto", "required", "named"]

PARAMS = ("response_format", "tools", "tool_choice", "parallel_tool_calls")
FORMATS = ("text", "json_object", "json_schema")
MODES: tuple[Choice, ...] = ("none", "auto", "required")
ANY_OBJECT = '{"type": "object"}'

MAX_TOOLS = 128
MAX_SCHEMA_BYTES = 64 << 10
MAX_SCHEMA_DEPTH = 32
"""Levels of lists and mappings in a schema; compiling costs more with each."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may ask to call.

    Attributes:
        parameters: JSON schema of its arguments, as text; empty where it has none.
        strict: whether arguments must follow the schema.
    """

    name: str
    description: str = ""
    parameters: str = ""
    strict: bool = False

    def templated(self) -> dict[str, Any]:
        """Return the tool as chat templates expect it, in OpenAI's shape."""
        function: dict[str, Any] = {"name": self.name}
        if self.description:
            function["description"] = self.description
        if self.parameters:
            function["parameters"] = json.loads(self.parameters)
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Structure:
    """The form of an answer.

    Attributes:
        schema: JSON schema of the whole answer, as text; None where it is free.
        tools: what may be called; none where nothing is to be called.
        choice: whether calls are free, or one must come.
        named: the function that must be called, when `choice` is `named`.
        parallel: whether several calls may come in one answer.
    """

    schema: str | None = None
    tools: tuple[Tool, ...] = ()
    choice: Choice = "none"
    named: str = ""
    parallel: bool = True

    @property
    def callable(self) -> tuple[Tool, ...]:
        """The tools that may be called in this answer."""
        if self.choice == "named":
            return tuple(tool for tool in self.tools if tool.name == self.named)
        return self.tools


def structure_of(params: Params) -> Structure:
    """Return what a request says about the form of its answer.

    Raises:
        InvalidRequest: it means nothing, or two things at once; the message names the field.
    """
    schema = _schema_of_answer(params.get("response_format"))
    tools = _tools(params.get("tools"))
    choice, named = _choice(params.get("tool_choice"), tools)
    parallel = params.get("parallel_tool_calls")
    if parallel is not None and not isinstance(parallel, bool):
        raise refused("parallel_tool_calls", f"must be true or false, got {parallel!r}")
    if not tools or choice == "none":
        return Structure(schema)
    if schema is not None:
        raise refused(
            "response_format",
            "cannot be combined with tools unless tool_choice is 'none': an answer is either "
            "calls or a document",
        )
    return Structure(None, tools, choice, named, parallel is not False)


def checked_schema(text: object, where: str) -> str:
    """Return a JSON schema as it came, if it is one in form and of a size that can be compiled.

    Raises:
        InvalidRequest: it is not.
    """
    if not isinstance(text, str):
        raise refused(where, f"must be a JSON schema as text, got {type(text).__name__}")
    if len(text.encode()) > MAX_SCHEMA_BYTES:
        raise refused(where, f"is longer than {MAX_SCHEMA_BYTES} bytes")
    if _depth(text) > MAX_SCHEMA_DEPTH:
        raise refused(where, f"is nested deeper than {MAX_SCHEMA_DEPTH} levels")
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise refused(where, f"is no JSON: {error}") from error
    if not isinstance(schema, dict):
        raise refused(where, f"must be a JSON object, got {type(schema).__name__}")
    return text


def refused(where: str, problem: str) -> InvalidRequest:
    """Return the error for one field."""
    return InvalidRequest(f"{where} {problem}", details={"field": where})


def _schema_of_answer(wanted: object) -> str | None:
    where = "response_format"
    if wanted is None:
        return None
    if not isinstance(wanted, Mapping) or wanted.get("type") not in FORMATS:
        raise refused(where, f"must have a type of {', '.join(FORMATS)}")
    kind, text = wanted["type"], wanted.get("schema_json")
    if kind == "json_schema":
        return checked_schema(text, f"{where}.json_schema.schema")
    if text is not None:
        raise refused(where, f"of type {kind} takes no schema; json_schema does")
    return ANY_OBJECT if kind == "json_object" else None


def _tools(given: object) -> tuple[Tool, ...]:
    if given is None:
        return ()
    if not isinstance(given, list | tuple):
        raise refused("tools", "must be a list of tools")
    if len(given) > MAX_TOOLS:
        raise refused("tools", f"are {len(given)}; at most {MAX_TOOLS} are accepted")
    tools = tuple(_tool(tool, f"tools[{n}].function") for n, tool in enumerate(given))
    names = [tool.name for tool in tools]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise refused(f"tools[{number}].function.name", f"repeats the name '{name}'")
    return tools


def _tool(given: object, where: str) -> Tool:
    if not isinstance(given, Mapping):
        raise refused(where, "must have a name")
    name, description = given.get("name"), given.get("description", "")
    parameters, strict = given.get("parameters_json", ""), given.get("strict", False)
    if not isinstance(name, str) or not _is_name(name):
        raise refused(f"{where}.name", "must be 1 to 64 letters, digits, underscores and dashes")
    if not isinstance(description, str) or not isinstance(strict, bool):
        raise refused(where, "has a description that is no text, or strict that is no bool")
    if parameters:
        checked_schema(parameters, f"{where}.parameters")
    return Tool(name, description, cast("str", parameters), strict)


def _choice(given: object, tools: Sequence[Tool]) -> tuple[Choice, str]:
    where, names = "tool_choice", [tool.name for tool in tools]
    if given is None:
        return ("auto" if tools else "none"), ""
    if isinstance(given, Mapping):
        name = given.get("name")
        if name not in names:
            known = ", ".join(names) or "none"
            raise refused(where, f"names the function {name!r}; known: {known}")
        return "named", str(name)
    for mode in MODES:
        if mode == given:
            if not tools and mode == "required":
                raise refused(where, "is 'required' and there are no tools")
            return mode, ""
    raise refused(where, f"must be one of {', '.join(MODES)}, or name a function")


def _is_name(name: str) -> bool:
    letters = name.replace("_", "").replace("-", "")
    return 0 < len(name) <= 64 and name.isascii() and (letters.isalnum() or not letters)


def _depth(text: str) -> int:
    """Return how deep brackets nest outside of strings; parsers recurse as deep."""
    depth = deepest = 0
    quoted = escaped = False
    for letter in text:
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = quoted
        elif letter == '"':
            quoted = not quoted
        elif not quoted and letter in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif not quoted and letter in "}]":
            depth -= 1
    return deepest
