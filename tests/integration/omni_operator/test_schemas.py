"""Golden manifests and shipped objects by kubeconform, with the schemas of a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omni_operator.plan.capabilities import OPTIONAL_KINDS
from omni_operator.yaml_text import to_yaml
from tests.support.golden import CASES, GOLDEN
from tests.support.operator_site import Site
from tests.support.schemas import kubeconform, write_schemas

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "kubernetes"
NOT_CHECKED = {name.partition(".")[0] for name in OPTIONAL_KINDS}
"""Kinds of others, whose schemas no plain API server has: PodMonitor, HTTPRoute, ScaledObject,
Certificate."""


@pytest.fixture
async def schemas(site: Site, tmp_path: Path) -> Path:
    directory = tmp_path / "schemas"
    directory.mkdir()
    foreign = {name.partition(".")[2] for name in OPTIONAL_KINDS}
    made = [one for case in CASES for one in (case.manifest, *case.manifests())]
    kinds = {(one["apiVersion"], one["kind"]) for one in made}
    ours = [one for one in kinds if one[0].partition("/")[0] not in foreign]
    await write_schemas(site.client, directory, ours)
    return directory


async def test_every_manifest_is_valid(schemas: Path, tmp_path: Path) -> None:
    objects = [one for case in CASES for one in (case.manifest, *case.manifests())]
    files = [*sorted(EXAMPLES.glob("*.yaml")), *sorted(GOLDEN.glob("*.yaml"))]
    text = "\n---\n".join([to_yaml(*objects), *(file.read_text() for file in files)])
    found = kubeconform(schemas, tmp_path, text, NOT_CHECKED)
    assert len(found) > len(objects)
    wrong = {
        f"{one['kind']} {one['name']}: {one['msg']}"
        for one in found
        if one["status"] not in ("statusValid", "statusSkipped")
    }
    assert not wrong
    skipped = {one["kind"] for one in found if one["status"] == "statusSkipped"}
    assert skipped == NOT_CHECKED


async def test_a_field_that_kubernetes_does_not_know_is_found(
    schemas: Path, tmp_path: Path
) -> None:
    broken: list[dict[str, Any]] = []
    for kind in ("Deployment", "NetworkPolicy", "PodDisruptionBudget"):
        found = (one for case in CASES for one in case.manifests() if one["kind"] == kind)
        one = next(found)
        broken.append(one | {"spec": one["spec"] | {"replcas": 2}})
    said = kubeconform(schemas, tmp_path, to_yaml(*broken))
    assert [one["status"] for one in said] == ["statusInvalid"] * len(broken)
    assert all("replcas" in one["msg"] for one in said)
