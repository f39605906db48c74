"""The two kinds of the API as whole objects, and how they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from omni_config.errors import ConfigError, Problem
from omni_config.suggestions import nearest
from omni_operator.api.base import ApiModel
from omni_operator.api.spec import OmniPipelineSpec
from omni_operator.api.status import OmniPipelineStatus, StatusModel
from omni_operator.names import API_VERSION, KIND


class OmniGroupSpec(ApiModel):
    """The wanted number of pods of one process group."""

    replicas: int = Field(1, ge=0, le=1000)
    """Pods of the group, of all revisions together."""


class OmniGroupStatus(StatusModel):
    """The observed pods of one process group."""

    replicas: int = 0
    """Pods of the group."""
    selector: str = ""
    """Label selector of its pods, of all revisions."""


@dataclass(frozen=True, slots=True)
class OmniPipeline:
    """One object.

    Attributes:
        generation: counts changes of the spec.
        managed_fields: `metadata.managedFields`, as the API server has it.
    """

    name: str
    namespace: str
    uid: str
    generation: int
    spec: OmniPipelineSpec
    status: OmniPipelineStatus = field(default_factory=OmniPipelineStatus)
    managed_fields: tuple[Mapping[str, Any], ...] = ()

    @property
    def reference(self) -> str:
        """The object as messages name it."""
        return f"{self.namespace}/{self.name}"


class _Metadata(BaseModel):
    """What is read of an object's metadata."""

    model_config = ConfigDict(extra="ignore")

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    managedFields: tuple[dict[str, Any], ...] = ()  # noqa: N815  Kubernetes' own spelling


def read_pipeline(manifest: Mapping[str, Any]) -> OmniPipeline:
    """Read an object or a manifest of one.

    Raises:
        ConfigError: with every problem of its shape, each with the path of the field.
    """
    problems = list(_kind_problems(manifest))
    if problems:
        raise ConfigError(problems)
    try:
        metadata = _Metadata.model_validate(manifest.get("metadata") or {})
    except ValidationError as error:
        raise ConfigError(_problem("metadata", one, _Metadata) for one in error.errors()) from error
    try:
        spec = OmniPipelineSpec.model_validate(manifest.get("spec") or {})
    except ValidationError as error:
        raise ConfigError(
            _problem("spec", one, OmniPipelineSpec) for one in error.errors()
        ) from error
    return OmniPipeline(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        generation=metadata.generation,
        spec=spec,
        status=OmniPipelineStatus.model_validate(manifest.get("status") or {}),
        managed_fields=metadata.managedFields,
    )


def _kind_problems(manifest: Mapping[str, Any]) -> Iterator[Problem]:
    for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if manifest.get(name) != wanted:
            yield Problem(name, f"{name} must be {wanted}, got {manifest.get(name)!r}")


def _problem(root: str, error: ErrorDetails, model: type[BaseModel]) -> Problem:
    """Return a validation error as a problem at the field it is about."""
    at = [part for part in error["loc"] if not _is_union_tag(part)]
    path = ".".join((root, *map(str, at)))
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] != "extra_forbidden":
        return Problem(path, f"{path}: {message}")
    known = _fields_at(model, at[:-1])
    return Problem(
        path,
        f"{path}: there is no such field",
        suggestions=nearest(str(at[-1]), known),
    )


def _is_union_tag(part: int | str) -> bool:
    """Whether a part of a location names a member of a union and no field."""
    return isinstance(part, str) and ("[" in part or part in ("int", "str"))


def _fields_at(model: type[BaseModel], path: list[int | str]) -> list[str]:
    """Return the names of the fields below a path of a model."""
    for part in path:
        field = next((info for info in model.model_fields.values() if info.alias == part), None)
        if field is None:
            continue  # the key of a map, or the index of a list
        model = next(_models_in(field.annotation), model)
    return [info.alias or name for name, info in model.model_fields.items()]


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401  any type at all
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
