"""The form of an answer: tools that the model may call, and JSON that it must write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from omni_wire.errors import InvalidRequest
from omni_wire.v1 import gateway_pb2 as pb

Schema: TypeAlias = "Mapping[str, Any] | str"
"""A JSON schema: a mapping, or JSON text."""

_MODES = ("none", "auto", "required")


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may ask to call.

    Attributes:
        parameters: JSON schema of its arguments; null where it takes none.
        strict: whether arguments must follow the schema for certain.
    """

    name: str
    description: str = ""
    parameters: Schema | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the model asks to call; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """The JSON that an answer must be."""

    schema: Schema


ToolLike: TypeAlias = "Tool | Mapping[str, Any]"
"""A tool, also as OpenAI's API has it."""
ResponseFormat: TypeAlias = "JsonSchema | str | Mapping[str, Any]"
"""A schema, `text` or `json_object`, also as OpenAI's API has them."""


def tool_protos(tools: Sequence[ToolLike]) -> list[pb.Tool]:
    """Return tools as the gateway takes them.

    Raises:
        InvalidRequest: one means nothing.
    """
    return [_tool(tool, f"tools[{number}]") for number, tool in enumerate(tools)]


def choice_proto(choice: str | Mapping[str, Any]) -> pb.ToolChoice:
    """Return a choice as the gateway takes it: a mode, the name of a function, or OpenAI's form.

    Raises:
        InvalidRequest: it means nothing.
    """
    if isinstance(choice, str):
        return pb.ToolChoice(mode=choice) if choice in _MODES else pb.ToolChoice(name=choice)
    function = choice.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise _refused("tool_choice", "must be a mode, or name a function")
    return pb.ToolChoice(name=name)


def format_proto(form: ResponseFormat) -> pb.ResponseFormat:
    """Return a response format as the gateway takes it.

    Raises:
        InvalidRequest: it means nothing.
    """
    where = "response_format"
    if isinstance(form, JsonSchema):
        return pb.ResponseFormat(type="json_schema", schema_json=_schema(form.schema, where))
    if isinstance(form, str):
        return pb.ResponseFormat(type=form)
    kind, schema = form.get("type"), form.get("json_schema")
    if not isinstance(kind, str):
        raise _refused(f"{where}.type", f"must be text, got {kind!r}")
    if kind != "json_schema":
        return pb.ResponseFormat(type=kind)
    if not isinstance(schema, Mapping):
        raise _refused(f"{where}.json_schema", "must be a mapping with a schema")
    text = _schema(schema.get("schema"), f"{where}.json_schema.schema")
    return pb.ResponseFormat(type=kind, schema_json=text)


def call_protos(calls: object, where: str) -> list[pb.ToolCall]:
    """Return the calls of an earlier answer, in OpenAI's form or ours.

    Raises:
        InvalidRequest: one means nothing.
    """
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise _refused(where, "must be a list of calls")
    return [_call(call, f"{where}[{number}]", number) for number, call in enumerate(calls)]


def _call(call: object, where: str, index: int) -> pb.ToolCall:
    if isinstance(call, ToolCall):
        return pb.ToolCall(id=call.id, name=call.name, arguments_json=call.arguments, index=index)
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise _refused(where, "must be a ToolCall, or a mapping with an id and a function")
    known, name, arguments = call.get("id"), function.get("name"), function.get("arguments")
    if not (isinstance(known, str) and isinstance(name, str) and isinstance(arguments, str)):
        raise _refused(where, "must hold id, name and arguments as text")
    return pb.ToolCall(id=known, name=name, arguments_json=arguments, index=index)


def _tool(tool: ToolLike, where: str) -> pb.Tool:
    function: Mapping[str, Any]
    if isinstance(tool, Tool):
        function = asdict(tool)
    else:
        given = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(given, Mapping):
            raise _refused(where, "must be a Tool, or a mapping with a function")
        function = given
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str):
        raise _refused(f"{where}.function.name", f"must be text, got {name!r}")
    return pb.Tool(
        name=name,
        description=function.get("description") or "",
        parameters_json=_schema(parameters, f"{where}.function.parameters") if parameters else "",
        strict=bool(function.get("strict")),
    )


def _schema(schema: object, where: str) -> str:
    if isinstance(schema, str):
        return schema
    if not isinstance(schema, Mapping):
        raise _refused(where, f"must be a JSON schema, got a {type(schema).__name__}")
    try:
        return json.dumps(schema, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise _refused(where, f"is no JSON: {error}") from error


def _refused(where: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"{where} {problem}", details={"field": where})
