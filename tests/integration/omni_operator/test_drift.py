"""What people and other controllers change by hand is put back, whatever kind it is."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from omni_operator.controller.client import MERGE_PATCH
from omni_operator.controller.resources import resource_of
from omni_operator.render.manifest import Manifest
from tests.support.end_state import end_state
from tests.support.operator_site import Site, eventually, pipeline

pytestmark = [pytest.mark.cluster, pytest.mark.storm]

EDITS: dict[str, dict[str, Any]] = {
    "ConfigMap": {"data": {"routes.json": "{}"}},
    "Deployment": {"spec": {"replicas": 7, "minReadySeconds": 5}},
    "Service": {"spec": {"selector": {"app": "else"}}},
    "ServiceAccount": {"automountServiceAccountToken": True},
    "PodDisruptionBudget": {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}},
    "NetworkPolicy": {"spec": {"ingress": []}},
    "HorizontalPodAutoscaler": {"spec": {"maxReplicas": 99}},
    "OmniGroup": {"metadata": {"labels": {"app.kubernetes.io/instance": "else"}}},
    "PersistentVolumeClaim": {"metadata": {"labels": {"app.kubernetes.io/instance": "else"}}},
    "Secret": {"data": {"ca.crt": "AAAA"}},
}
"""An edit of every kind, as a merge patch."""


async def test_every_owned_kind_is_repaired_after_an_edit_and_after_a_deletion(site: Site) -> None:
    # Secrets may be written but not read; they are looked at on every resync.
    site.start_operator(resync_seconds=1.0)
    scaled = {"scaling": {"replicas": 1, "maxReplicas": 2}}
    await site.offer_volume("1Gi", storageClassName=site.namespace)
    wanted = pipeline(site, modelCache={"size": "1Gi", "storageClassName": site.namespace})
    wanted["spec"]["groups"]["front"] |= scaled
    await site.create(wanted)
    await site.until_ready("tts")
    before = await site.owned("tts")
    kinds = {kind for kind, _ in before}
    assert kinds == set(EDITS)

    for (kind, _), one in before.items():
        await _patch(site, one, EDITS[kind])
    await _until_as_before(site, before)

    for (kind, _), one in before.items():
        if kind != "PersistentVolumeClaim":  # Kubernetes keeps a claim while pods use it
            await site.remove(one)
    await _until_as_before(site, before)
    await site.until_ready("tts")


async def _until_as_before(site: Site, before: dict[tuple[str, str], Manifest]) -> None:
    wanted = end_state(before)

    async def repaired() -> bool:
        return end_state(await site.owned("tts")) == wanted

    async def departures() -> str:
        found = end_state(await site.owned("tts"))
        return "\n".join(
            f"{name}\n  {wanted.get(name)}\n  {found.get(name)}"
            for name in wanted.keys() | found.keys()
            if wanted.get(name) != found.get(name)
        )

    await eventually(repaired, departures)


async def _patch(site: Site, one: Manifest, edit: dict[str, Any]) -> None:
    """Change an object; one that is immutable gets another label instead."""
    resource, metadata = resource_of(one), one["metadata"]
    edit = copy.deepcopy(edit)
    if one.get("immutable"):
        edit = {"metadata": {"labels": {"app.kubernetes.io/instance": "else"}}}
    path = resource.path(site.namespace, metadata["name"])
    await site.client.request("PATCH", path, edit, MERGE_PATCH)
