"""The description of the API: bodies by the models that read them, errors as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

REFS = "#/components/schemas/{model}"
ERROR = "Error"
ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code", "retryable"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "Field that is wrong."},
                "code": {"type": "string", "description": "Stable word for programs."},
                "retryable": {"type": "boolean"},
                "stage": {"type": "string"},
                "made": {
                    "type": "object",
                    "description": "What there was of the answer when it failed.",
                    "properties": {
                        "tokens": {"type": "number"},
                        "audio_seconds": {"type": "number"},
                    },
                },
            },
        }
    },
}


def body_of(model: type[BaseModel], media_type: str = "application/json") -> dict[str, Any]:
    """Return the description of a route's body."""
    schema = {"$ref": REFS.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


def responses_of(*media_types: str) -> dict[int | str, dict[str, Any]]:
    """Return the description of a route's answers."""
    error = {"application/json": {"schema": {"$ref": REFS.format(model=ERROR)}}}
    return {
        200: {"description": "The answer.", "content": {name: {} for name in media_types}},
        "default": {"description": "An error.", "content": error},
    }


def describe(app: FastAPI, models: Sequence[type[BaseModel]]) -> None:
    """Let an application describe bodies by these models."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
            )
            _, definitions = models_json_schema(
                [(model, "validation") for model in models], ref_template=REFS
            )
            schemas = found.setdefault("components", {}).setdefault("schemas", {})
            schemas.update({**definitions.get("$defs", {}), ERROR: ERROR_SCHEMA})
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation does it
