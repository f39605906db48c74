"""What every model of the Kubernetes API shares, and the annotations only a CRD understands.

Kubernetes' own fields are camelCase; Python reads them snake_case. Rules that span fields are
written twice on purpose: as CEL for the API server and as a validator for whoever plans a file
without a cluster. A test runs one table of objects through both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

Json = JsonValue
"""A value as JSON has it."""
JsonObject = dict[str, JsonValue]

INT_OR_STRING = "x-kubernetes-int-or-string"
PRESERVE_UNKNOWN = "x-kubernetes-preserve-unknown-fields"
LIST_TYPE = "x-kubernetes-list-type"
LIST_MAP_KEYS = "x-kubernetes-list-map-keys"
MAP_TYPE = "x-kubernetes-map-type"
VALIDATIONS = "x-kubernetes-validations"


class ApiModel(BaseModel):
    """A group of fields of an object; an unknown field is an error."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
    )


@dataclass(frozen=True, slots=True)
class Rule:
    """One CEL rule of a group; `self` is the group.

    Attributes:
        rule: expression that holds for a valid object.
        message: shown when it does not; says what to write instead.
    """

    rule: str
    message: str


def rules(*wanted: Rule) -> JsonDict:
    """Return the schema annotation that puts rules on a model."""
    return {VALIDATIONS: [{"rule": rule.rule, "message": rule.message} for rule in wanted]}


def map_list(*keys: str) -> JsonDict:
    """Return the schema annotation of a list whose items are told apart by their keys."""
    return {LIST_TYPE: "map", LIST_MAP_KEYS: list(keys)}


ATOMIC_LIST: JsonDict = {LIST_TYPE: "atomic"}
"""Annotation of a list that is replaced as a whole."""

FreeObject = Annotated[dict[str, Any], WithJsonSchema({"type": "object", PRESERVE_UNKNOWN: True})]
"""An object of Kubernetes' own that is checked where it is used: a full schema of a pod alone
would push the CRD over what `kubectl apply` can store."""

IntOrString = Annotated[int | str, WithJsonSchema({INT_OR_STRING: True})]


def _known_resources(value: dict[str, int | str]) -> dict[str, int | str]:
    for name, quantity in value.items():
        if isinstance(quantity, bool) or quantity == "":
            raise ValueError(f"{name} must be a quantity such as 4, 500m or 16Gi")
    return value


Quantities = Annotated[dict[str, IntOrString], AfterValidator(_known_resources)]
"""Resource quantities by resource name."""

Name = Annotated[
    str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]
"""Name of another Kubernetes object."""
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[int, Field(ge=0, le=86400)]
