"""What a real API server makes of the definitions and of rendered manifests: rules with their
messages, nulls and bare switches that survive, and no default that a renderer forgot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from omni_operator.controller.client import ApiError
from omni_operator.controller.resources import PIPELINES, resource_of
from omni_operator.plan.capabilities import OPTIONAL_KINDS
from omni_operator.plan.comparison import differences
from omni_operator.render.manifest import Manifest
from tests.support.golden import CASES, Case
from tests.support.objects import REFUSED, Refused, speech
from tests.support.operator_site import Site

FOREIGN = tuple(name.partition(".")[2] for name in OPTIONAL_KINDS)
"""API groups that a bare cluster does not serve."""
CLUSTER_CHOOSES = {
    "PersistentVolumeClaim": {"metadata.finalizers"},
    "Service": {"spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ports.nodePort"},
    "HorizontalPodAutoscaler": {"status"},
}
"""Fields that are the cluster's to choose, which no manifest can know."""
READ_ONLY = {
    "metadata.creationTimestamp",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
    "metadata.uid",
    "status",
}


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
async def test_rules_are_the_same_as_without_an_api_server(site: Site, case: Refused) -> None:
    with pytest.raises(ApiError) as refusal:
        await site.create(_in(case.manifest, site.namespace))
    assert refusal.value.status == 422
    assert case.says in str(refusal.value)


async def test_defaults_are_filled_in_and_the_object_reads_back(site: Site) -> None:
    made = await site.create(_in(speech(), site.namespace))
    assert made["spec"]["gpuSharing"]["mode"] == "Auto"
    assert made["spec"]["rollout"]["type"] == "Surge"
    assert "model" not in made["spec"], "an optional group stays absent"


async def test_what_a_configuration_means_survives(site: Site) -> None:
    text = """
    config_cls: Qwen3OmniSpeechPipelineConfig
    model_path: /models/tiny
    mps: on
    weight_share: off
    stages:
      code2wav: {gpu_memory_fraction: null}
      thinker:
        gpu: [0, 1]
        total_reserve_bytes: 2GiB
        engine: {mem_fraction_static: null, kv_cache_bytes: 1GiB, custom: {deep: [1, null]}}
        factory: {free: null}
    shared:
      - {select: {engine: true}, env: {A: "1"}}
    misspelt: 1
    """
    manifest = speech()
    manifest["spec"]["config"] = yaml.safe_load(text)
    made = await site.create(_in(manifest, site.namespace))
    assert made["spec"]["config"] == manifest["spec"]["config"]


async def test_the_scale_subresource_sets_a_group(site: Site) -> None:
    await site.create(_in(speech(scale={"group": "decode", "replicas": 1}), site.namespace))
    path = PIPELINES.path(site.namespace, "demo", "scale")
    scale = {"spec": {"replicas": 3}}
    await site.client.request("PATCH", path, scale, "application/merge-patch+json")
    assert (await site.pipeline("demo"))["spec"]["scale"]["replicas"] == 3


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_manifests_are_accepted_and_nothing_is_added(site: Site, case: Case) -> None:
    """GitOps tools show what the server adds as a change that nobody made."""
    for manifest in case.manifests():
        if manifest["apiVersion"].partition("/")[0] in FOREIGN:
            continue
        wanted = _in(manifest, site.namespace)
        made = await site.client.apply(wanted, dry_run=True)
        assert differences(wanted, made) == ()
        added = set(_added(wanted, made)) - READ_ONLY - CLUSTER_CHOOSES.get(wanted["kind"], set())
        assert not added, f"{wanted['kind']} {wanted['metadata']['name']}"


def test_every_manifest_has_a_resource_to_write_to() -> None:
    for case in CASES:
        for manifest in case.manifests():
            assert resource_of(manifest).kind == manifest["kind"]


def _in(manifest: Mapping[str, Any], namespace: str) -> Manifest:
    metadata = {**manifest["metadata"], "namespace": namespace}
    for reference in metadata.get("ownerReferences", ()):
        reference["uid"] = "00000000-0000-0000-0000-000000000000"
    metadata.pop("uid", None)
    metadata.pop("generation", None)
    return {**manifest, "metadata": metadata}


def _added(wanted: Any, made: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of fields that the server added; its empty ones say nothing."""
    if isinstance(wanted, dict) and isinstance(made, dict):
        for key, value in made.items():
            below = f"{path}.{key}" if path else key
            if key in wanted:
                yield from _added(wanted[key], value, below)
            elif value not in ({}, None):
                yield below
    elif isinstance(wanted, list) and isinstance(made, list):
        for ours, theirs in zip(wanted, made, strict=False):
            yield from _added(ours, theirs, path)
