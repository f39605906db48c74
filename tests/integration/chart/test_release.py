"""A release's life on a real API server: installed, upgraded, removed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator

import pytest

from omni_operator.controller.client import Client, load_configuration, open_client
from omni_operator.controller.resources import DEPLOYMENTS, Resource
from tests.support.control_plane import Cluster, cluster
from tests.support.helm import CHART, helm

pytestmark = pytest.mark.cluster

NAMESPACE = "omni-system"
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"
)
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles")


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("chart")) as running:
        yield running


@contextlib.asynccontextmanager
async def administrator(running: Cluster) -> AsyncIterator[Client]:
    configuration = await load_configuration(running.kubeconfig)
    async with open_client(configuration) as client:
        yield client


def run(running: Cluster, *arguments: str) -> str:
    done = helm(*arguments, "--namespace", NAMESPACE, kubeconfig=running.kubeconfig)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_release_is_installed_upgraded_and_removed(api_server: Cluster) -> None:
    notes = run(api_server, "install", "omnipipe", str(CHART), "--create-namespace")
    assert "kubectl omni plan -f pipeline.yaml" in notes
    assert asyncio.run(_definitions(api_server)) == {
        "omnipipelines.omnipipe.dev",
        "omnigroups.omnipipe.dev",
    }
    run(api_server, "upgrade", "omnipipe", str(CHART), "--set", "images.operator.tag=next")
    assert asyncio.run(_image(api_server)).endswith("omnipipe/operator:next")
    run(api_server, "rollback", "omnipipe", "1")
    assert asyncio.run(_image(api_server)).endswith("omnipipe/operator:0.1.0")

    run(api_server, "uninstall", "omnipipe")
    assert asyncio.run(_left(api_server)) == set()
    assert len(asyncio.run(_definitions(api_server))) == 2
    # The definitions that stayed do not stand in the way of the next release.
    run(api_server, "install", "omnipipe", str(CHART))
    history = json.loads(run(api_server, "history", "omnipipe", "--output", "json"))
    assert [one["status"] for one in history] == ["deployed"]


async def _definitions(running: Cluster) -> set[str]:
    async with administrator(running) as client:
        return {one["metadata"]["name"] async for one in client.list(DEFINITIONS)}


async def _image(running: Cluster) -> str:
    async with administrator(running) as client:
        found = await client.get(DEPLOYMENTS, NAMESPACE, "omnipipe")
    image: str = found["spec"]["template"]["spec"]["containers"][0]["image"]
    return image


async def _left(running: Cluster) -> set[str]:
    """Names of what a removed release left behind in its namespace and in the cluster."""
    kinds = (
        DEPLOYMENTS,
        Resource("", "v1", "Service", "services"),
        Resource("", "v1", "Secret", "secrets"),
        Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
        Resource("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    )
    found: set[str] = set()
    async with administrator(running) as client:
        for kind in kinds:
            found |= {one["metadata"]["name"] async for one in client.list(kind, NAMESPACE)}
        roles = {one["metadata"]["name"] async for one in client.list(CLUSTER_ROLES)}
    return found | {name for name in roles if "omnipipe" in name}
