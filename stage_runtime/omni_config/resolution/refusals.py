"""Validation errors of pydantic, said in the words of this configuration.

The library names a class and a list index, prints type tags and a link. A user needs the path they
wrote, the value, and what would fit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from omni_config.errors import Problem
from omni_config.resolution.paths import Path, format_path
from omni_config.resolution.scalars import describe_type
from omni_config.suggestions import nearest

_SHOWN_CHARACTERS = 80


def validation_problems(
    error: ValidationError, model: type[BaseModel], prefix: Path
) -> list[Problem]:
    """Return one problem per path; members of a union fail together and are reported once."""
    grouped: dict[Path, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        grouped.setdefault(_setting(detail["loc"], model), []).append(detail)
    return [_problem((*prefix, *path), details, model, path) for path, details in grouped.items()]


def _setting(location: Sequence[int | str], model: type[BaseModel]) -> Path:
    """Return the part of a location that is a path: union tags and list indexes are not."""
    path: list[str] = []
    current: Any = model
    for segment in location:
        if not isinstance(segment, str):
            break
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(segment)
            if field is None:
                return (*path, segment)
            current = field.annotation
        elif getattr(current, "__origin__", None) is dict:
            current = get_args(current)[1]
        else:
            break
        path.append(segment)
    return tuple(path)


def _problem(
    full: Path, details: Sequence[ErrorDetails], model: type[BaseModel], path: Path
) -> Problem:
    name = format_path(full)
    first = details[0]
    if first["type"] == "extra_forbidden":
        return Problem(
            name,
            f"{model.__name__} has no field '{full[-1]}' at '{format_path(full[:-1])}'",
            suggestions=nearest(full[-1], model.model_fields),
        )
    if first["type"] == "missing":
        return Problem(name, f"{name} is required")
    shown = _shown(first["input"])
    if len(details) > 1 and path:
        expected = describe_type(_annotation(model, path))
        return Problem(name, f"{name} expects {expected}, got {shown}")
    message = _sentence(first)
    suggestions: tuple[str, ...] = ()
    if first["type"] == "literal_error" and isinstance(first["input"], str):
        choices = re.findall(r"'([^']*)'", str(first.get("ctx", {}).get("expected", "")))
        suggestions = nearest(first["input"], choices)
    return Problem(name, f"{name} {message}, got {shown}", suggestions=suggestions)


def _sentence(detail: ErrorDetails) -> str:
    message = detail["msg"].removeprefix("Value error, ")
    return re.sub(r"^(Input|Value|Tuple|List|Dictionary|String) should ", "must ", message)


def _annotation(model: type[BaseModel], path: Path) -> object:
    current: Any = model
    for segment in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            current = current.model_fields[segment].annotation
        else:
            current = get_args(current)[1]
    return current


def _shown(value: object) -> str:
    text = repr(value)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return text[: _SHOWN_CHARACTERS - 1] + "…"
