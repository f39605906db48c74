"""A release's life on a real API server: installed, upgraded, tested, removed.

The operator runs here with the arguments that the chart gives it, and as the chart's service
account, so that it may do no more than the chart's roles allow.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from omni_operator.controller.client import STRATEGIC_PATCH, ApiError, Client
from omni_operator.controller.operator import Operator
from omni_operator.controller.resources import DEPLOYMENTS, PODS, Resource
from omni_operator.main import read_options
from tests.support.control_plane import Cluster, cluster
from tests.support.helm import CHART, Manifest, chart_of_version, helm
from tests.support.kubelet import LABEL, toleration
from tests.support.operator_site import DEFINITIONS, Site, eventually, open_site, pipeline

pytestmark = pytest.mark.cluster

NAMESPACE = "omni-system"
NAME = "omnipipe"
OURS = {"omnipipelines.omnipipe.dev", "omnigroups.omnipipe.dev"}
DEFINED = {("CustomResourceDefinition", name) for name in OURS}
DEFINED |= {("APIService", "v1alpha1.omnipipe.dev")}
"""The definitions, and what the API server makes of them."""
KUBERNETES_OWN = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
"""What Kubernetes itself puts into every namespace."""


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("chart")) as running:
        yield running


@pytest.fixture
async def site(api_server: Cluster, tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(api_server, tmp_path) as opened:
        opened.proxy.user = f"system:serviceaccount:{NAMESPACE}:{NAME}"
        yield opened


async def test_a_release_is_installed_upgraded_tested_and_removed(
    site: Site, api_server: Cluster, tmp_path: Path
) -> None:
    async def run(*arguments: str) -> str:
        words = (*arguments, "--namespace", NAMESPACE)
        done = await asyncio.to_thread(helm, *words, kubeconfig=api_server.kubeconfig)
        assert done.returncode == 0, done.stderr
        return done.stdout

    before = await _objects(site.client)
    older = chart_of_version(tmp_path, "0.0.9")
    placed = ("--set-json", f"operator={json.dumps(_placed(site))}")
    notes = await run("install", NAME, str(older), "--create-namespace", *placed)
    assert "kubectl omni plan -f pipeline.yaml" in notes
    old = await _start(site, images_of="0.0.9")
    await site.create(pipeline(site))
    await site.until_ready("tts")
    pods, templates = await _pods(site), await _templates(site)

    assert "Revision" not in await _columns(site.client)
    await run("upgrade", NAME, str(CHART), *placed)
    assert "Revision" in await _columns(site.client), "definitions are upgraded too"
    await site.stop_operator(old)
    new = await _start(site, images_of="0.1.0")
    await eventually(lambda: _has_looked(new))
    await site.until_ready("tts")
    assert await _templates(site) == templates, "an upgrade of the operator restarts no pod"
    assert await _pods(site) == pods
    images = {it["image"] for spec in templates.values() for it in spec["spec"]["containers"]}
    assert images == {"omnipipe/stage:0.0.9", "omnipipe/gateway:0.0.9"}

    site.kubelet.starts = lambda pod: not _is_test(pod)
    playing = asyncio.create_task(_play_test(site, new))
    assert "Phase:          Succeeded" in await run("test", NAME)
    await playing

    await site.delete_and_wait("tts")
    await run("uninstall", NAME)
    await site.stop_operators()
    await eventually(lambda: _nothing_new(site, before), lambda: _news(site, before))
    assert {one["metadata"]["name"] async for one in site.client.list(DEFINITIONS)} >= OURS

    # The definitions that stayed do not stand in the way of the next release.
    await run("install", NAME, str(CHART))
    history = json.loads(await run("history", NAME, "--output", "json"))
    assert [one["status"] for one in history] == ["deployed"]
    await run("uninstall", NAME)


async def _columns(client: Client) -> set[str]:
    """Return the printer columns of the installed definition."""
    found = await client.get(DEFINITIONS, None, "omnipipelines.omnipipe.dev")
    (served,) = found["spec"]["versions"]
    return {one["name"] for one in served.get("additionalPrinterColumns", ())}


def _placed(site: Site) -> Manifest:
    """Return values that place the operator's pods on the pretended node."""
    return {"nodeSelector": {LABEL: site.namespace}, "tolerations": [toleration()]}


async def _start(site: Site, images_of: str) -> Operator:
    """Start the operator as its Deployment says."""
    found = await site.client.get(DEPLOYMENTS, NAMESPACE, NAME)
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"omnipipe/operator:{images_of}"
    told = read_options(container["args"])
    assert told.release.stage_image == f"omnipipe/stage:{images_of}"
    changes: dict[str, Any] = {"lease": told.lease, "release": told.release, "namespaces": ()}
    return site.start_operator(**changes, service_account=told.service_account)


async def _has_looked(operator: Operator) -> bool:
    done = operator.metrics.registry.get_sample_value(
        "omnipipe_operator_reconciles_total", {"result": "done"}
    )
    return (done or 0) > 0


async def _pods(site: Site) -> set[str]:
    return {one["metadata"]["uid"] for one in await site.pods("tts")}


async def _templates(site: Site) -> dict[str, Manifest]:
    """Return the pod templates of the pipeline's Deployments, by name."""
    return {
        name: one["spec"]["template"]
        for (kind, name), one in (await site.owned("tts")).items()
        if kind == "Deployment"
    }


def _is_test(pod: Any) -> bool:
    return bool(pod["metadata"]["name"] == f"{NAME}-test")


async def _play_test(site: Site, operator: Operator) -> None:
    """Do what the node would do with the release's test pod: run its command. The Service's name
    leads to the operator by a proxy."""

    async def scheduled() -> Manifest | None:
        try:
            pod = await site.client.get(PODS, NAMESPACE, f"{NAME}-test")
        except ApiError:
            return None
        return pod if pod["spec"].get("nodeName") else None

    pod = await eventually(scheduled)
    assert pod is not None
    (container,) = pod["spec"]["containers"]
    program, *words = container["command"]
    assert program == "python"
    way = {"http_proxy": f"http://127.0.0.1:{operator.health_port}", "no_proxy": ""}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, env={**os.environ, **way}
    )
    status = {"phase": "Succeeded" if await process.wait() == 0 else "Failed"}
    path = PODS.path(NAMESPACE, pod["metadata"]["name"], "status")
    await site.client.request("PATCH", path, {"status": status}, STRATEGIC_PATCH)


async def _nothing_new(site: Site, before: set[tuple[str, str]]) -> bool:
    return not await _objects(site.client) - before


async def _news(site: Site, before: set[tuple[str, str]]) -> str:
    return f"left behind: {sorted(await _objects(site.client) - before)}"


async def _objects(client: Client) -> set[tuple[str, str]]:
    """Return every object of the release's namespace, and every cluster-wide one named after us,
    by kind and name; definitions and Events apart."""
    found: set[tuple[str, str]] = set()
    for resource, namespaced in await _served(client):
        place = NAMESPACE if namespaced else None
        with contextlib.suppress(ApiError):  # listed and not to be had, such as a review
            async for one in client.list(resource, place):
                name = one["metadata"]["name"]
                if namespaced or "omnipipe" in name:
                    found.add((resource.kind, name))
    return found - KUBERNETES_OWN - DEFINED


async def _served(client: Client) -> list[tuple[Resource, bool]]:
    """Return every kind that can be listed, and whether its objects have a namespace."""
    groups = (await client.request("GET", "/apis"))["groups"]
    versions = [("", "v1")]
    versions += [(it["name"], it["preferredVersion"]["version"]) for it in groups]
    found: list[tuple[Resource, bool]] = []
    for group, version in versions:
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        for one in (await client.request("GET", root))["resources"]:
            if "list" in one["verbs"] and one["kind"] != "Event":
                resource = Resource(group, version, one["kind"], one["name"])
                found.append((resource, one["namespaced"]))
    return found
