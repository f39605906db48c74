"""From the form that an answer must have to a grammar that the engine can keep it to.

Whatever xgrammar cannot take is refused here, before any work is done for the request. Formats of
calls are SGLang's, one per family of models.
"""

from __future__ import annotations

import json
from typing import Any

from omni_models.structured.wishes import ANY_OBJECT, Structure, Tool, refused
from omni_runtime.sglang_bridge.sampling import Grammar
from omni_runtime.sglang_bridge.xgrammar_words import problem_of
from omni_wire.errors import InvalidRequest

MAX_WHITESPACE = 32
"""Blanks in a row between the parts of a document; a model may else go on with them for ever."""


def grammar_of(structure: Structure, parser: str | None) -> Grammar | None:
    """Return the grammar of an answer; None where any text will do.

    Args:
        parser: name of the model's format of calls, as SGLang knows it.

    Raises:
        InvalidRequest: xgrammar cannot keep an answer to the schema; the message says why.
    """
    if structure.schema is not None:
        where = "response_format" + (
            "" if structure.schema == ANY_OBJECT else ".json_schema.schema"
        )
        _check(structure.schema, where)
        return Grammar("json_schema", structure.schema, where)
    if parser is None or not structure.tools:
        return None
    return _calls(structure, parser)


def _calls(structure: Structure, parser: str) -> Grammar | None:
    forced = structure.choice in ("required", "named")
    if not forced and not any(tool.strict for tool in structure.tools):
        return None
    from sglang.srt.function_call.function_call_parser import FunctionCallParser

    detector = FunctionCallParser.ToolCallParserEnum[parser]()
    if not detector.supports_structural_tag():
        raise refused("tool_choice", f"cannot be forced: calls of '{parser}' have no grammar")
    info = detector.structure_info()
    formats = {tool.name: info(tool.name) for tool in structure.callable}
    tags = [
        {
            "type": "tag",
            "begin": formats[tool.name].begin,
            "content": {
                "type": "json_schema",
                "json_schema": _arguments(tool, structure),
                "max_whitespace_cnt": MAX_WHITESPACE,
            },
            "end": formats[tool.name].end,
        }
        for tool in structure.callable
    ]
    alone = {"at_least_one": forced, "stop_after_first": not structure.parallel}
    if forced:
        # Nothing but calls: text between them would let a model talk for ever.
        form = {"type": "tags_with_separator", "separator": detector.tool_call_separator}
    else:
        triggers = sorted({one.trigger for one in formats.values()})
        form = {"type": "triggered_tags", "triggers": triggers}
    tag = {"type": "structural_tag", "format": {**form, "tags": tags, **alone}}
    return Grammar("structural_tag", json.dumps(tag), "tools")


def _arguments(tool: Tool, structure: Structure) -> dict[str, Any] | bool:
    """Return the schema that arguments are kept to.

    A strict tool's own, or else the request is refused. Of another tool, its own where xgrammar
    takes it and any object where not: nothing was promised.
    """
    if not tool.parameters:
        return {"type": "object"}
    schema: dict[str, Any] = json.loads(tool.parameters)
    place = [one.name for one in structure.tools].index(tool.name)
    try:
        _check(tool.parameters, f"tools[{place}].function.parameters")
    except InvalidRequest:
        if tool.strict:
            raise
        return {"type": "object"}
    return schema


def _check(schema: str, where: str) -> None:
    from sglang.srt.constrained.json_schema_validation import (
        UnsupportedJSONSchemaFeature,
        validate_xgrammar_json_schema,
    )
    from xgrammar import Grammar as Compiled

    if "\\u0000" in schema:
        raise refused(where, "holds the character NUL")
    try:
        validate_xgrammar_json_schema(json.loads(schema))
        Compiled.from_json_schema(schema)
    except (UnsupportedJSONSchemaFeature, RuntimeError) as error:
        raise refused(where, f"cannot be kept to: {problem_of(str(error))}") from error
