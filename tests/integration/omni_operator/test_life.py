"""A pipeline from its creation to its end: created, edited, scaled, rolled back, deleted."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest
from cryptography import x509

from omni_operator.controller.resources import DEPLOYMENTS, EVENTS, PIPELINES
from omni_operator.controller.status_writer import PAUSE_SECONDS
from omni_operator.names import LABEL_REVISION, LABEL_SHAPE
from tests.support.operator_site import Site, eventually, pipeline

pytestmark = pytest.mark.cluster


async def test_one_object_becomes_a_served_model(site: Site) -> None:
    site.start_operator()
    await site.create(pipeline(site))
    await site.until_ready("tts")

    found = await site.pipeline("tts")
    assert found["status"]["groupsReady"] == "2/2"
    assert found["status"]["revision"]["current"] == found["status"]["revision"]["update"]
    assert "finalizers" not in found["metadata"]
    assert "annotations" not in found["metadata"]

    async def told() -> bool:
        return {"RolloutStarted", "RolloutCompleted", "Ready"} <= set(await _reasons(site))

    await eventually(told)
    reasons = await _reasons(site)
    assert len(reasons) == len(set(reasons))


async def test_creating_k_children_costs_at_most_k_plus_3_writes(site: Site) -> None:
    site.start_operator()
    await site.until_waiting()  # the authority Secret is made once per operator, not per pipeline
    site.proxy.requests.clear()
    began = time.monotonic()
    await site.create(pipeline(site))
    await site.until_ready("tts")
    # A busy machine starts pods slowly, and how far they are is written once in a pause.
    pauses = int((time.monotonic() - began) / PAUSE_SECONDS)
    children = await site.owned("tts")
    assert len(site.proxy.counted()) <= len(children) + 3 + pauses


async def test_pods_get_a_certificate_of_their_pipelines_authority(site: Site) -> None:
    site.start_operator()
    await site.create(pipeline(site))
    await site.until_ready("tts")
    secret = (await site.owned("tts"))["Secret", "tts-tls"]["data"]
    certificate, authority = (
        x509.load_pem_x509_certificate(base64.b64decode(secret[name]))
        for name in ("tls.crt", "ca.crt")
    )
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [f"tts.{site.namespace}.omnipipe.dev"]


async def test_an_edit_restarts_only_the_groups_it_touches(site: Site) -> None:
    site.start_operator()
    await site.create(pipeline(site))
    await site.until_ready("tts")
    before = await _pods_by_shape(site)
    await site.edit("tts", _engine_edit(3))
    await site.until_ready("tts")
    after = await _pods_by_shape(site)
    assert after["front"] == before["front"]
    assert after["pipeline"].isdisjoint(before["pipeline"])


async def test_scaling_through_the_scale_subresource(site: Site) -> None:
    site.start_operator()
    await site.create(pipeline(site, scale={"group": "front", "replicas": 1}))
    await site.until_ready("tts")
    scale = {"spec": {"replicas": 3}}
    path = PIPELINES.path(site.namespace, "tts", "scale")
    await site.client.request("PATCH", path, scale, "application/merge-patch+json")
    await site.until_ready("tts")
    assert len((await _pods_by_shape(site))["front"]) == 3
    said = await site.client.request("GET", path)
    assert said["status"]["replicas"] == 3

    await site.edit("tts", {"spec": {"scale": {"replicas": 1}}})
    await site.until_ready("tts")
    await eventually(lambda: _has_pods(site, "front", 1))


async def test_a_revert_in_the_middle_goes_back_to_the_pods_that_serve(site: Site) -> None:
    site.start_operator()
    await site.create(pipeline(site))
    await site.until_ready("tts")
    before = await _pods_by_shape(site)
    revision = (await site.pipeline("tts"))["status"]["revision"]["current"]
    site.kubelet.starts = lambda pod: pod["metadata"]["name"] in before["pipeline"]
    await site.edit("tts", _engine_edit(3))
    await eventually(lambda: _has_pods(site, "pipeline", 2))
    await site.edit("tts", _engine_edit(None))
    await site.until_ready("tts")
    await eventually(lambda: _has_pods(site, "pipeline", 1))
    assert await _pods_by_shape(site) == before
    assert (await site.pipeline("tts"))["status"]["revision"]["current"] == revision


async def test_a_paused_pipeline_starts_no_revision(site: Site) -> None:
    site.start_operator()
    await site.create(pipeline(site))
    await site.until_ready("tts")
    before = await _pods_by_shape(site)
    edit = _engine_edit(3)
    edit["spec"]["rollout"] = {"paused": True}
    await site.edit("tts", edit)

    async def says_paused() -> bool:
        return (await site.condition("tts", "Progressing")).get("reason") == "Paused"

    await eventually(says_paused, lambda: site.describe("tts"))
    assert await _pods_by_shape(site) == before
    await site.edit("tts", {"spec": {"rollout": {"paused": False}}})
    await site.until_ready("tts")
    assert (await _pods_by_shape(site))["pipeline"].isdisjoint(before["pipeline"])


async def test_an_invalid_edit_keeps_the_good_revision_serving(site: Site) -> None:
    site.start_operator()
    await site.create(pipeline(site))
    await site.until_ready("tts")
    before = await _pods_by_shape(site)
    await site.edit("tts", {"spec": {"config": {"stages": {"vocodr": {"gpu": 0}}}}})

    async def refused() -> bool:
        return (await site.condition("tts", "ConfigResolved")).get("status") == "False"

    await eventually(refused, lambda: site.describe("tts"))
    condition = await site.condition("tts", "ConfigResolved")
    assert "spec.config.stages.vocodr" in condition["message"]
    assert "vocoder" in condition["message"]
    assert (await site.condition("tts", "Routable"))["status"] == "True"
    assert (await site.condition("tts", "Ready"))["status"] == "False"
    assert await _pods_by_shape(site) == before


@pytest.mark.parametrize(
    ("wrong", "told_as"),
    [
        pytest.param({"sharedMemory": "lots"}, "quantities", id="no quantity"),
        pytest.param(
            {"podTemplate": {"spec": {"nodeSelectr": {"a": "b"}}}}, "nodeSelectr", id="no field"
        ),
        pytest.param(
            {"resources": {"requests": {"memory": "9Gi"}, "limits": {"memory": "3Gi"}}},
            "memory limit",
            id="against a rule",
        ),
    ],
)
async def test_an_object_that_the_api_server_refuses_is_told_and_the_others_are_kept(
    site: Site, wrong: dict[str, Any], told_as: str
) -> None:
    site.start_operator()
    await site.create(pipeline(site))
    await site.until_ready("tts")
    before = await site.owned("tts")
    await site.edit("tts", {"spec": {"groups": {"front": wrong}}})

    async def told() -> bool:
        degraded = await site.condition("tts", "Degraded")
        return degraded.get("reason") == "ObjectRefused"

    await eventually(told, lambda: site.describe("tts"))
    message = (await site.condition("tts", "Degraded"))["message"]
    assert message.startswith("Deployment tts-")
    assert told_as in message
    assert (await site.condition("tts", "Ready"))["status"] == "False"
    assert (await site.condition("tts", "Routable"))["status"] == "True"
    budgets = [identity for identity in before if identity[0] == "PodDisruptionBudget"]
    for identity in budgets:
        await site.remove(before[identity])

    async def repaired() -> bool:
        return set(budgets) <= set(await site.owned("tts"))

    await eventually(repaired, lambda: site.describe("tts"))
    await site.edit("tts", {"spec": {"groups": {"front": dict.fromkeys(wrong)}}})
    await site.until_ready("tts")
    assert (await site.condition("tts", "Degraded"))["status"] == "False"


async def test_a_changed_profile_rolls_out(site: Site) -> None:
    profile = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "platform", "namespace": site.namespace},
        "data": {"config.yaml": "stages: {tts_engine: {engine: {max_running_requests: 2}}}"},
    }
    await site.client.create(profile)
    site.start_operator()
    await site.create(pipeline(site, profileRefs=[{"name": "platform"}]))
    await site.until_ready("tts")
    before = await _pods_by_shape(site)
    changed = (await site.pipeline("tts"))["status"]["config"]["changed"]
    row = next(
        one for one in changed if one["path"] == "stages.tts_engine.engine.max_running_requests"
    )
    assert row["from"].startswith("profile platform/config.yaml")

    await site.client.apply(
        profile
        | {"data": {"config.yaml": "stages: {tts_engine: {engine: {max_running_requests: 4}}}"}}
    )

    async def rolled() -> bool:
        ready = (await site.condition("tts")).get("status") == "True"
        return ready and (await _pods_by_shape(site))["pipeline"].isdisjoint(before["pipeline"])

    await eventually(rolled, lambda: site.describe("tts"))


async def test_deleting_the_object_leaves_nothing(site: Site) -> None:
    site.start_operator()
    await site.create(pipeline(site))
    await site.until_ready("tts")
    await site.delete("tts")

    async def gone() -> bool:
        return not await site.owned("tts") and not await site.pods("tts")

    await eventually(gone)


async def test_old_revisions_beyond_the_history_are_deleted(site: Site) -> None:
    site.start_operator()
    await site.create(pipeline(site, rollout={"historyLimit": 1}))
    await site.until_ready("tts")
    for size in (2, 3, 4):
        await site.edit("tts", _engine_edit(size))
        await site.until_ready("tts")

    async def kept() -> bool:
        return len(await _revisions(site, "pipeline")) == 2

    await eventually(kept)


def _engine_edit(requests: int | None) -> dict[str, Any]:
    """Return a patch of a setting that only the engine's group reads; None takes it back."""
    engine = {"max_running_requests": requests}
    return {"spec": {"config": {"stages": {"tts_engine": {"engine": engine}}}}}


async def _reasons(site: Site) -> list[str]:
    """Return the reasons of all Events about pipelines."""
    return [
        one["reason"]
        async for one in site.client.list(EVENTS, site.namespace)
        if one["involvedObject"]["kind"] == PIPELINES.kind
    ]


async def _pods_by_shape(site: Site) -> dict[str, set[str]]:
    """Return the names of living stage pods."""
    found: dict[str, set[str]] = {}
    for pod in await site.pods("tts"):
        shape = pod["metadata"]["labels"].get(LABEL_SHAPE)
        if shape and not pod["metadata"].get("deletionTimestamp"):
            found.setdefault(shape, set()).add(pod["metadata"]["name"])
    return found


async def _has_pods(site: Site, shape: str, count: int) -> bool:
    return len((await _pods_by_shape(site)).get(shape, ())) == count


async def _revisions(site: Site, shape: str) -> set[str]:
    selector = f"{LABEL_SHAPE}={shape}"
    return {
        one["metadata"]["labels"][LABEL_REVISION]
        async for one in site.client.list(DEPLOYMENTS, site.namespace, selector)
    }
