"""CustomResourceDefinitions from the models.

A CRD takes less than JSON schema has: no references, no unions with null, numbers with OpenAPI 3.0
bounds, a type everywhere. What is left out on purpose is `default` of empty lists and mappings: an
object then shows what its owner wrote and little else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from omni_operator.api.base import VALIDATIONS
from omni_operator.api.pipeline import OmniGroupSpec, OmniGroupStatus
from omni_operator.api.spec import OmniPipelineSpec
from omni_operator.api.status import OmniPipelineStatus
from omni_operator.names import GROUP, KIND, PLURAL, SCALE_KIND, SCALE_PLURAL, VERSION
from omni_operator.yaml_text import to_yaml

Schema = dict[str, Any]

MAX_NAME = 52
"""Room for the longest suffix that names of owned objects get before they are cut."""
_DROPPED = ("title", "$defs", "additionalProperties")
_NAME_RULE = {
    "rule": f"size(self.metadata.name) <= {MAX_NAME}"
    " && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    "message": f"metadata.name must be at most {MAX_NAME} lower-case letters, digits and dashes and"
    " begin with a letter: Services are named after it",
}
_COLUMNS = (
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Whether it serves", 0),
    ("Model", "string", ".status.model.source", "Checkpoint", 0),
    ("Groups", "string", ".status.groupsReady", "Pod shapes with all pods routable", 0),
    ("GPUs", "integer", ".status.gpus", "GPUs asked for", 0),
    ("Revision", "string", ".status.revision.current", "Revision that serves", 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', "Why not ready", 1),
    ("Age", "date", ".metadata.creationTimestamp", "", 0),
)


def pipeline_crd() -> dict[str, Any]:
    """Return the CRD of OmniPipeline."""
    schema = _object_schema(OmniPipelineSpec, OmniPipelineStatus, "A pipeline of stages, served.")
    schema[VALIDATIONS] = [_NAME_RULE]
    return _crd(
        names={"kind": KIND, "plural": PLURAL, "singular": "omnipipeline", "shortNames": ["omni"]},
        schema=schema,
        scale=(".spec.scale.replicas", ".status.scale.replicas", ".status.scale.selector"),
        columns=_COLUMNS,
    )


def group_crd() -> dict[str, Any]:
    """Return the CRD of OmniGroup."""
    description = (
        "Replica count of one process group: what an autoscaler scales. The operator makes one for"
        " each group whose scaling is not fixed."
    )
    columns = (
        ("Desired", "integer", ".spec.replicas", "Pods wanted", 0),
        ("Current", "integer", ".status.replicas", "Pods there", 0),
        ("Age", "date", ".metadata.creationTimestamp", "", 0),
    )
    return _crd(
        names={"kind": SCALE_KIND, "plural": SCALE_PLURAL, "singular": "omnigroup"},
        schema=_object_schema(OmniGroupSpec, OmniGroupStatus, description),
        scale=(".spec.replicas", ".status.replicas", ".status.selector"),
        columns=columns,
    )


def crd_yaml(crd: Mapping[str, Any]) -> str:
    """Return a CRD as the text of its file."""
    head = "# Generated from operator/omni_operator/api by scripts/generate.py; do not edit.\n"
    return head + to_yaml(crd)


def _crd(
    names: dict[str, Any],
    schema: Schema,
    scale: tuple[str, str, str],
    columns: tuple[tuple[str, str, str, str, int], ...],
) -> dict[str, Any]:
    spec_path, status_path, selector_path = scale
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                **names,
                "listKind": f"{names['kind']}List",
                "categories": ["inference"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": spec_path,
                            "statusReplicasPath": status_path,
                            "labelSelectorPath": selector_path,
                        },
                    },
                    "additionalPrinterColumns": [_column(*column) for column in columns],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _column(name: str, kind: str, path: str, description: str, priority: int) -> dict[str, Any]:
    column = {"name": name, "type": kind, "jsonPath": path}
    if description:
        column["description"] = description
    return column | {"priority": priority} if priority else column


def _object_schema(
    spec: type[BaseModel], status: type[BaseModel], description: str
) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the object's schema."},
            "kind": {"type": "string", "description": "Kind of the object."},
            "metadata": {"type": "object"},
            "spec": structural(spec),
            "status": structural(status),
        },
    }


def structural(model: type[BaseModel]) -> Schema:
    """Return a model's schema in the dialect of CRDs."""
    schema = model.model_json_schema(by_alias=True)
    return _plain(schema, schema.get("$defs", {}))


def _plain(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    if "$ref" in schema:
        target = definitions[schema["$ref"].removeprefix("#/$defs/")]
        # What stands beside a reference (description, default) speaks of this use of it.
        schema = target | {key: value for key, value in schema.items() if key != "$ref"}
    optional = "anyOf" in schema
    if optional:
        schema = _without_null(schema, definitions)
    result = {key: value for key, value in schema.items() if key not in _DROPPED}
    _map_values(schema, result, definitions)
    if "properties" in schema:
        result["properties"] = {
            name: _plain(one, definitions) for name, one in schema["properties"].items()
        }
    if "items" in schema:
        result["items"] = _plain(schema["items"], definitions)
    if "const" in result:
        result["enum"] = [result.pop("const")]
    if "maxProperties" not in result and "additionalProperties" in result:
        result["maxProperties"] = _MAX_PROPERTIES
    _set_bounds(result)
    _set_default(result)
    if optional:
        # Absent says something here, so nothing may be filled in.
        result.pop("default", None)
    return _ordered(result)


_MAX_PROPERTIES = 256


def _map_values(schema: Schema, result: Schema, definitions: Mapping[str, Schema]) -> None:
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        result["additionalProperties"] = _plain(values, definitions)


def _without_null(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Return the only member of a union that is not null; an absent field says null here."""
    members = [one for one in schema["anyOf"] if one.get("type") != "null"]
    (only,) = members
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return _plain(only, definitions) | rest


def _set_bounds(schema: Schema) -> None:
    for bound in ("minimum", "maximum"):
        exclusive = f"exclusive{bound.capitalize()}"
        if isinstance(schema.get(exclusive), int | float) and schema[exclusive] is not True:
            schema[bound] = schema[exclusive]
            schema[exclusive] = True


def _set_default(schema: Schema) -> None:
    """Keep defaults of scalars; a group gets those of its fields, written out.

    The API server checks a default against the group's rules before it fills in nested ones.
    """
    if schema.get("type") == "object" and "properties" in schema:
        fields = schema["properties"].items()
        schema["default"] = {name: one["default"] for name, one in fields if "default" in one}
    if schema.get("default") in (None, [], {}) or schema.get("required"):
        schema.pop("default", None)


_ORDER = ("type", "description", "default", "enum", "required", "properties")


def _ordered(schema: Schema) -> Schema:
    first = {key: schema[key] for key in _ORDER if key in schema}
    return first | {key: value for key, value in schema.items() if key not in first}
