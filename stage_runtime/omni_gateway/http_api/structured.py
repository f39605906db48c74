"""What a chat request says about the form of its answer, in OpenAI's shape."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from omni_gateway.http_api.model import ApiModel, served
from omni_wire.messages import Tree

MAX_TOOLS = 128
Name: TypeAlias = Annotated[str, Field(pattern="^[a-zA-Z0-9_-]{1,64}$")]
SchemaObject: TypeAlias = dict[str, Any]


class JsonSchema(ApiModel):
    """The schema that an answer is kept to."""

    name: Name = Field(description="Accepted as OpenAI wants it; nothing depends on it.")
    description: str | None = served("Likewise.", max_length=4096)
    json_schema: SchemaObject = Field(
        alias="schema", description="What the answer must be; whatever cannot be kept is refused."
    )
    strict: bool | None = served("Answers are kept to the schema in any case.")


class TextFormat(ApiModel):
    """Any text."""

    type: Literal["text"]


class JsonObjectFormat(ApiModel):
    """Any JSON object."""

    type: Literal["json_object"]


class JsonSchemaFormat(ApiModel):
    """JSON of a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat: TypeAlias = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")
]


class FunctionTool(ApiModel):
    """A function that the model may ask to call."""

    name: Name = Field(description="Letters, digits, underscores and dashes.")
    description: str | None = served("Tells the model what it does.", max_length=16_384)
    parameters: SchemaObject | None = served("JSON schema of its arguments; none when absent.")
    strict: bool | None = served(
        "Arguments follow the schema for certain, or the request is refused; where calls are "
        "forced, they follow any schema that can be kept."
    )


class Tool(ApiModel):
    """Something that the model may ask for."""

    type: Literal["function"]
    function: FunctionTool


class NamedFunction(ApiModel):
    """A function, by its name."""

    name: Name


class NamedChoice(ApiModel):
    """The function that must be called."""

    type: Literal["function"]
    function: NamedFunction


ToolChoice: TypeAlias = Literal["none", "auto", "required"] | NamedChoice


def format_params(wanted: ResponseFormat | None) -> dict[str, Tree]:
    """Return the parameters that a response format becomes; text asks for nothing."""
    if wanted is None or isinstance(wanted, TextFormat):
        return {}
    form: dict[str, Tree] = {"type": wanted.type}
    if isinstance(wanted, JsonSchemaFormat):
        # As text: a tree between stages keeps no order, and answers follow the schema's.
        form["schema_json"] = json.dumps(wanted.json_schema.json_schema, ensure_ascii=False)
    return {"response_format": form}


def tool_params(
    tools: list[Tool] | None, choice: ToolChoice | None, parallel: bool | None
) -> dict[str, Tree]:
    """Return the parameters that tools become; without tools, what asks for nothing is left out."""
    params: dict[str, Tree] = {}
    if tools:
        params["tools"] = [_tool(tool.function) for tool in tools]
        if parallel is not None:
            params["parallel_tool_calls"] = parallel
    if isinstance(choice, NamedChoice):
        params["tool_choice"] = {"name": choice.function.name}
    elif choice is not None and (tools or choice == "required"):
        params["tool_choice"] = choice
    return params


def _tool(function: FunctionTool) -> Tree:
    tool: dict[str, Tree] = {"name": function.name}
    if function.description is not None:
        tool["description"] = function.description
    if function.parameters is not None:
        tool["parameters_json"] = json.dumps(function.parameters, ensure_ascii=False)
    if function.strict:
        tool["strict"] = True
    return tool
