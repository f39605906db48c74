"""The CRDs are structural, described and small. A real API server takes them in
`tests/integration`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from omni_operator.api.crd import crd_yaml, group_crd, pipeline_crd
from omni_operator.api.spec import OmniPipelineSpec

MAX_BYTES = 200 * 1024
CRDS = [pytest.param(pipeline_crd(), id="pipeline"), pytest.param(group_crd(), id="group")]
FORBIDDEN = {"$ref", "anyOf", "oneOf", "allOf", "not", "const", "$defs"}
FREE = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string")
Schema = dict[str, Any]


def schemas(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, one in schema.get("properties", {}).items():
        yield from schemas(one, f"{path}.{name}")
    if "items" in schema:
        yield from schemas(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from schemas(schema["additionalProperties"], f"{path}.*")


def schema_of(crd: Schema) -> Schema:
    (version,) = crd["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


@pytest.mark.parametrize("crd", CRDS)
def test_the_schema_is_structural(crd: Schema) -> None:
    for path, schema in schemas(schema_of(crd)):
        assert not FORBIDDEN & schema.keys(), path
        assert "type" in schema or any(schema.get(key) for key in FREE), f"{path} has no type"
        assert not ("properties" in schema and "additionalProperties" in schema), path
        assert schema.get("additionalProperties") is not False, path
        for bound in ("exclusiveMinimum", "exclusiveMaximum"):
            assert isinstance(schema.get(bound, True), bool), f"{path}: OpenAPI 3.0 wants a boolean"


@pytest.mark.parametrize("crd", CRDS)
def test_lists_of_named_items_say_what_names_them(crd: Schema) -> None:
    for path, schema in schemas(schema_of(crd)):
        keys = schema.get("x-kubernetes-list-map-keys", ())
        items = schema.get("items", {})
        for key in keys:
            known = items.get("properties", {}).get(key, {})
            assert key in items.get("required", ()) or "default" in known, f"{path}: {key}"
        if schema.get("type") == "array":
            assert schema.get("x-kubernetes-list-type"), f"{path} has no merge semantics"


@pytest.mark.parametrize("crd", CRDS)
def test_every_field_is_described(crd: Schema) -> None:
    bare = [
        path
        for path, schema in schemas(schema_of(crd))
        if not schema.get("description")
        and not path.endswith(("*", "[]"))
        and path not in ("", ".metadata")
    ]
    assert not bare


@pytest.mark.parametrize("crd", CRDS)
def test_the_file_stays_small_enough_to_apply(crd: Schema) -> None:
    assert len(crd_yaml(crd).encode()) < MAX_BYTES


def test_defaults_are_what_the_models_read() -> None:
    spec = schema_of(pipeline_crd())["properties"]["spec"]["properties"]
    filled = {name: one["default"] for name, one in spec.items() if "default" in one}
    config = {"config_cls": "X", "model_path": "x"}
    assert OmniPipelineSpec.model_validate({"config": config, **filled}) == (
        OmniPipelineSpec.model_validate({"config": config})
    )


def test_a_null_in_the_configuration_survives() -> None:
    """The API server drops nulls of fields that are not nullable, and a null clears a default."""
    spec = schema_of(pipeline_crd())["properties"]["spec"]["properties"]
    stage = spec["config"]["properties"]["stages"]["additionalProperties"]
    assert stage["properties"]["gpu_memory_fraction"]["nullable"]
    assert stage["properties"]["engine"]["properties"]["mem_fraction_static"]["nullable"]


def test_names_and_columns() -> None:
    spec = pipeline_crd()["spec"]
    assert spec["names"]["shortNames"] == ["omni"]
    assert spec["names"]["categories"] == ["inference"]
    (version,) = spec["versions"]
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.scale.replicas"
    columns = [column["name"] for column in version["additionalPrinterColumns"]]
    for name in ("Ready", "Model", "Groups", "GPUs", "Revision", "Age"):
        assert name in columns
