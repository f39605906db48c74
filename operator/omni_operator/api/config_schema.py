"""The CRD's schema of `spec.config`, derived from the configuration's own path language.

Typed, so that `kubectl explain` knows every setting and the API server refuses a wrong type. Two
things differ from an ordinary schema. Unknown keys are kept: the operator refuses a misspelt one
with the nearest real name, where the API server would drop it in silence (inside `engine` and
`factory` other consumers know more keys). And every setting is nullable, because a null in a
configuration clears a default.
"""

from __future__ import annotations

from typing import Any

from omni_config.resolution.grammar import Grammar, Group, Keyed, Leaf, Node
from omni_config.resolution.scalars import ScalarType
from omni_config.schema import EngineStageConfig, PipelineConfig, StageConfig
from omni_operator.api.base import INT_OR_STRING, LIST_TYPE, PRESERVE_UNKNOWN

Schema = dict[str, Any]

MAX_STAGES = 128
MAX_SHARED = 64
_SWITCH_WORDS = {"on", "off"}
_STAGE = "any"


class _AnyPipeline(PipelineConfig):
    """A pipeline with one stage of the richest kind: its settings are those any stage may have."""

    @classmethod
    def declare(cls) -> tuple[StageConfig, ...]:
        return (EngineStageConfig(name=_STAGE, factory_path="x.y", process=_STAGE, terminal=True),)


def config_schema() -> Schema:
    """Return the schema of a configuration's body."""
    grammar = Grammar(_AnyPipeline)
    return {
        "type": "object",
        "required": ["config_cls"],
        PRESERVE_UNKNOWN: True,
        "properties": {
            "config_cls": {
                "type": "string",
                "minLength": 1,
                "description": "Pipeline class; `omni pipelines` lists them.",
            },
            **{name: _node(node) for name, node in grammar.top.children.items()},
            "stages": {
                "type": "object",
                "description": "Settings of each stage, by its name.",
                "maxProperties": MAX_STAGES,
                "additionalProperties": {
                    "type": "object",
                    "description": "Settings of one stage; its place in the graph is code.",
                    "properties": _children(grammar.stages[_STAGE]),
                    PRESERVE_UNKNOWN: True,
                },
            },
            "shared": _shared(),
        },
    }


def _shared() -> Schema:
    return {
        "type": "array",
        "description": "Settings of several stages at once; weaker than stages.",
        "maxItems": MAX_SHARED,
        LIST_TYPE: "atomic",
        "items": {
            "type": "object",
            "description": "Settings, and select, which says whose they are.",
            PRESERVE_UNKNOWN: True,
        },
    }


def _children(group: Group) -> Schema:
    return {name: _node(node) for name, node in group.children.items()}


def _node(node: Node) -> Schema:
    match node:
        case Leaf(type=scalar):
            schema = _scalar(scalar)
        case Keyed(value=value):
            schema = {"type": "object", "additionalProperties": _node(value), "nullable": True}
        case Group():
            schema = {"type": "object", "properties": _children(node), "nullable": True}
            schema[PRESERVE_UNKNOWN] = True
    return {"description": node.description, **schema} if node.description else schema


def _scalar(scalar: ScalarType) -> Schema:
    if scalar.choices:
        return _choice(scalar.choices)
    if scalar.size:
        return {INT_OR_STRING: True, "nullable": True}
    if scalar.is_list or scalar.any or len(scalar.kinds) != 1:
        # An integer or a list: no structural schema says that, so the configuration checks it.
        return {PRESERVE_UNKNOWN: True, "nullable": True}
    (kind,) = scalar.kinds
    name = {bool: "boolean", int: "integer", float: "number", str: "string"}[kind]
    return {"type": name, "nullable": True}


def _choice(words: tuple[str, ...]) -> Schema:
    """Return the schema of a word. YAML's bare `on` and `off` arrive as booleans, which is right
    too."""
    if _SWITCH_WORDS & set(words):
        return {PRESERVE_UNKNOWN: True, "enum": [*words, True, False]}
    return {"type": "string", "enum": list(words)}
