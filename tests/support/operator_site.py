"""A namespace of a real API server with a node of its own, a counting door and operators.

Tests run side by side in one control plane: pods of a namespace land on its own node only, and an
operator looks after its own namespace only.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import yaml

from omni_config.errors import OmniError
from omni_operator.controller.authority import SECRET_NAME
from omni_operator.controller.client import (
    MERGE_PATCH,
    ApiError,
    Client,
    load_configuration,
    open_client,
)
from omni_operator.controller.lease import LeaseOptions
from omni_operator.controller.operator import Operator
from omni_operator.controller.options import Options
from omni_operator.controller.queue import Backoff
from omni_operator.controller.resources import GROUPS, OWNED, PIPELINES, PODS, Resource, resource_of
from omni_operator.names import API_VERSION, KIND, LABEL_PIPELINE
from omni_operator.render.manifest import Manifest
from omni_operator.render.view import Release
from tests.support.api_proxy import ApiProxy, api_proxy
from tests.support.control_plane import Cluster
from tests.support.kubelet import LABEL, Kubelet, toleration
from tests.support.pki import kubeconfig_through
from tests.support.pod_traffic import PlayedTraffic

CRDS = Path(__file__).resolve().parents[2] / "crds"
NAMESPACES = Resource("", "v1", "Namespace", "namespaces")
PERSISTENT_VOLUMES = Resource("", "v1", "PersistentVolume", "persistentvolumes")
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"
)
DEADLINE_SECONDS = 120.0
"""The garbage collector alone may take half a minute to learn of a kind that was just defined."""
POLL_SECONDS = 0.05
START_OVER_SECONDS = 0.2
NO_TIMEOUT = aiohttp.ClientTimeout(total=None)
"""A node's watch lasts as long as its test."""
_numbers = itertools.count(1)
T = TypeVar("T")


@dataclass(slots=True)
class Site:
    """What one test works with.

    Attributes:
        client: an administrator's, beside the door.
        proxy: the door that operators come through.
    """

    namespace: str
    client: Client
    proxy: ApiProxy
    kubelet: Kubelet
    traffic: PlayedTraffic
    options: Options
    operators: list[tuple[Operator, asyncio.Task[None]]] = field(default_factory=list)

    def start_operator(self, **changes: Any) -> Operator:
        """Start an operator of this namespace."""
        operator = Operator(replace(self.options, **changes), self.traffic)
        self.operators.append((operator, asyncio.create_task(_kept_running(operator))))
        return operator

    async def until_waiting(self) -> None:
        """Return once the newest operator has made ready and has nothing to do."""
        secrets = Resource("", "v1", "Secret", "secrets")

        async def prepared() -> bool:
            found = [one async for one in self.client.list(secrets, self.namespace)]
            return any(one["metadata"]["name"] == SECRET_NAME for one in found)

        await eventually(prepared)

    async def stop_operators(self) -> None:
        """End all operators, as SIGTERM would."""
        tasks = [task for _, task in self.operators]
        self.operators.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def stop_operator(self, operator: Operator) -> None:
        """End one operator, as SIGTERM would."""
        task = next(task for known, task in self.operators if known is operator)
        self.operators = [one for one in self.operators if one[0] is not operator]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def post(self, path: str, manifest: Manifest) -> Manifest:
        """Create an object of any kind."""
        return await self.client.request("POST", path, manifest)

    async def offer_volume(self, capacity: str, **binding: Any) -> None:
        """Make a volume for a claim, which nothing here provisions.

        Args:
            binding: which claim it is for, as fields of its spec.
        """
        spec = {
            "capacity": {"storage": capacity},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": "/models"},
        }
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": self.namespace},
            "spec": spec | binding,
        }
        await self.post(PERSISTENT_VOLUMES.path(), volume)

    async def remove(self, manifest: Manifest) -> None:
        """Delete an object of any kind that the operator owns."""
        path = resource_of(manifest).path(self.namespace, manifest["metadata"]["name"])
        await self.client.request("DELETE", path)

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an OmniPipeline."""
        return await self.client.request("POST", PIPELINES.path(self.namespace), manifest)

    async def edit(self, name: str, patch: Mapping[str, Any]) -> Manifest:
        """Merge a patch into an OmniPipeline, as `kubectl patch` does."""
        path = PIPELINES.path(self.namespace, name)
        return await self.client.request("PATCH", path, patch, MERGE_PATCH)

    async def delete(self, name: str) -> None:
        """Delete an OmniPipeline."""
        await self.client.request("DELETE", PIPELINES.path(self.namespace, name))

    async def delete_and_wait(self, name: str) -> None:
        """Delete an OmniPipeline and return when everything of it is gone."""
        await self.delete(name)

        async def gone() -> bool:
            return not await self.owned(name) and not await self.pods(name)

        await eventually(gone)

    async def pipeline(self, name: str) -> Manifest:
        """Return an OmniPipeline as it is now."""
        return await self.client.get(PIPELINES, self.namespace, name)

    async def condition(self, name: str, kind: str = "Ready") -> Mapping[str, Any]:
        """Return a condition of an OmniPipeline that speaks of its present spec, or nothing."""
        found = await self.pipeline(name)
        for one in (found.get("status") or {}).get("conditions") or ():
            is_current = one.get("observedGeneration") == found["metadata"]["generation"]
            if one["type"] == kind and is_current:
                return dict(one)
        return {}

    async def until_ready(self, name: str) -> None:
        """Return once a pipeline is Ready for its present spec."""

        async def ready() -> bool:
            return (await self.condition(name)).get("status") == "True"

        await eventually(ready, lambda: self.describe(name))

    async def owned(self, name: str) -> dict[tuple[str, str], Manifest]:
        """Return every object of a pipeline by kind and name, pods apart."""
        selector, found = f"{LABEL_PIPELINE}={name}", {}
        for resource in (*OWNED, Resource("", "v1", "Secret", "secrets")):
            with contextlib.suppress(ApiError):  # a kind this cluster does not serve
                async for one in self.client.list(resource, self.namespace, selector):
                    found[one["kind"], one["metadata"]["name"]] = one
        return found

    async def pods(self, name: str) -> list[Manifest]:
        """Return the pods of a pipeline."""
        selector = f"{LABEL_PIPELINE}={name}"
        return [one async for one in self.client.list(PODS, self.namespace, selector)]

    async def describe(self, name: str) -> str:
        """Return what a person would look at when a test fails."""
        try:
            status = (await self.pipeline(name)).get("status")
        except ApiError as error:
            return str(error)
        pods = [_line(one) for one in await self.pods(name)]
        return yaml.safe_dump({"status": status, "pods": pods}, width=160)


async def _kept_running(operator: Operator) -> None:
    """Run an operator again when it must start over, as Kubernetes does with its container."""
    while True:
        try:
            await operator.run()
        except OmniError as error:
            print(f"operator starts over: {error}")
        await asyncio.sleep(START_OVER_SECONDS)


def _line(pod: Manifest) -> str:
    conditions = pod["status"].get("conditions") or ()
    true = [one["type"] for one in conditions if one["status"] == "True"]
    going = " going" if pod["metadata"].get("deletionTimestamp") else ""
    return f"{pod['metadata']['name']} {pod['status'].get('phase')}{going} {','.join(true)}"


async def eventually(
    holds: Callable[[], Awaitable[T]],
    describe: Callable[[], Awaitable[str]] | None = None,
    seconds: float = DEADLINE_SECONDS,
) -> T:
    """Ask until the answer is true and return it; fails with a description at the deadline."""
    try:
        async with asyncio.timeout(seconds):
            while not (answer := await holds()):  # noqa: ASYNC110  the API server tells nobody
                await asyncio.sleep(POLL_SECONDS)
            return answer
    except TimeoutError:
        said = await describe() if describe is not None else ""
        raise AssertionError(f"not true within {seconds:.0f} s\n{said}") from None


@contextlib.asynccontextmanager
async def open_site(
    cluster: Cluster, directory: Path, gpus: int = 1000, *, private: bool = True, **changes: Any
) -> AsyncIterator[Site]:
    """A namespace with all that belongs to it, while the context lasts.

    Args:
        private: whether only pods that tolerate it land on the namespace's node.
    """
    namespace = f"site-{os.getpid()}-{next(_numbers)}"
    configuration = await load_configuration(cluster.kubeconfig)
    async with (
        open_client(configuration) as client,
        api_proxy(configuration) as proxy,
        api_proxy(configuration) as back_door,
        open_client(await load_configuration(_kubeconfig(directory, back_door))) as plain,
        aiohttp.ClientSession(back_door.url, timeout=NO_TIMEOUT) as session,
    ):
        await client.request("POST", NAMESPACES.path(), _namespace(namespace))
        room = {"nvidia.com/gpu": str(gpus)}
        kubelet = Kubelet(plain, session, namespace, room, private)
        traffic = PlayedTraffic(lambda: iter(kubelet.pods.values()))
        options = _options(namespace, _kubeconfig(directory, proxy))
        site = Site(namespace, client, proxy, kubelet, traffic, replace(options, **changes))
        playing = asyncio.create_task(kubelet.run())
        try:
            yield site
        finally:
            await site.stop_operators()
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
            await _remove(client, namespace)


async def install_definitions(cluster: Cluster) -> None:
    """Install the project's CRDs and wait until they are served."""
    async with open_client(await load_configuration(cluster.kubeconfig)) as client:
        for path in sorted(CRDS.glob("*.yaml")):
            definition = yaml.safe_load(path.read_text())
            await client.request(
                "PATCH",
                DEFINITIONS.path(None, definition["metadata"]["name"]),
                definition,
                "application/apply-patch+yaml",
                {"fieldManager": "test", "force": "true"},
            )

        async def served() -> bool:
            with contextlib.suppress(ApiError):  # not known yet, or its storage not ready yet
                for resource in (PIPELINES, GROUPS):
                    _ = [one async for one in client.list(resource)]
                return True
            return False

        await eventually(served)


def pipeline(site: Site, name: str = "tts", **spec: Any) -> Manifest:
    """Return a small pipeline whose pods land on the site's node: a CPU pod and a GPU pod."""
    placed = {"nodeSelector": {LABEL: site.namespace}, "tolerations": [toleration()]}
    groups = {process: dict(placed) for process in ("front", "pipeline")}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": site.namespace},
        "spec": {
            "config": {
                "config_cls": "Qwen3TTSPipelineConfig",
                "model_path": "Qwen/Qwen3-TTS",
                "stages": {"preprocessing": {"process": "front"}},
            },
            "groups": groups,
            "gateway": dict(placed),
            **spec,
        },
    }


def _kubeconfig(directory: Path, proxy: ApiProxy) -> Path:
    port = proxy.url.rpartition(":")[2]
    return kubeconfig_through(directory, f"door-{port}", proxy.url)


def _options(namespace: str, kubeconfig: Path) -> Options:
    return Options(
        release=Release(stage_image="omnipipe/stage:test", gateway_image="omnipipe/gateway:test"),
        lease=LeaseOptions(namespace, duration=9.0, renew_deadline=6.0, retry=0.5),
        namespaces=(namespace,),
        kubeconfig=kubeconfig,
        backoff=Backoff(first=0.05, limit=1.0),
        profile_seconds=0.5,
        identity="operator",
        health_port=0,
        metrics_port=0,
    )


def _namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


async def _remove(client: Client, namespace: str) -> None:
    """Remove what would disturb others; the namespace itself goes in its own time."""
    for resource, name in (
        (NAMESPACES, namespace),
        (Resource("", "v1", "Node", "nodes"), namespace),
    ):
        with contextlib.suppress(ApiError):
            await client.request("DELETE", resource.path(None, name))
