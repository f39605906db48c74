"""Reading a cluster for `kubectl omni`: one pipeline, what it owns, and what the API server says to
a dry run."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from google.protobuf.json_format import ParseDict, ParseError

from omni_config.errors import OmniError
from omni_operator.controller.client import ApiError, Client, load_configuration, open_client
from omni_operator.controller.discovery import discover
from omni_operator.controller.gateways import combine
from omni_operator.controller.profiles import ProfileReader
from omni_operator.controller.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    OWNED,
    PIPELINES,
    PODS,
    served,
)
from omni_operator.display.changes import Change, changes
from omni_operator.names import GATEWAY_HTTP_PORT, LABEL_PIPELINE
from omni_operator.plan.cluster_state import gateway_pods
from omni_operator.plan.decision import decide
from omni_operator.plan.world import Decision, GatewaysSeen, ObjectId, Observed, World
from omni_operator.render.manifest import Manifest
from omni_operator.render.view import Release
from omni_wire.v1 import gateway_pb2

NOT_YET = "00000000-0000-0000-0000-000000000000"
"""UID of an object that a plan makes up because it was not created yet."""
OPERATOR_SELECTOR = "app.kubernetes.io/name=omnipipe-operator"
GATEWAY_SECONDS = 3.0
"""A gateway that does not answer by then is shown as unknown."""
RELEASE = Release(stage_image="<the operator's stage image>", gateway_image="<its gateway image>")


class NoSuchPipeline(OmniError):
    """The cluster has no object of this name, or it has not been acted on yet."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What applying a file would do.

    Attributes:
        changes: with the objects as the API server would store them.
        refused: what the API server says to what it would not store.
    """

    decision: Decision
    changes: tuple[Change, ...]
    refused: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a command looks.

    Attributes:
        kubeconfig: null for the one of the environment.
        namespace: null for that of the kubeconfig's context.
    """

    kubeconfig: Path | None = None
    namespace: str | None = None

    @property
    def file(self) -> Path:
        """The kubeconfig in use."""
        first = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
        return self.kubeconfig or Path(first or "~/.kube/config").expanduser()

    @property
    def space(self) -> str:
        """The namespace in use."""
        if self.namespace is not None:
            return self.namespace
        with suppress(OSError):
            content = yaml.safe_load(self.file.read_text()) or {}
            current = content.get("current-context")
            for one in content.get("contexts") or ():
                if one["name"] == current:
                    return str(one["context"].get("namespace") or "default")
        return "default"


async def read_pipeline_object(target: Target, name: str) -> Manifest:
    """Return an OmniPipeline.

    Raises:
        NoSuchPipeline: there is none.
    """
    async with _client(target) as client:
        return await _pipeline(client, target.space, name)


async def read_config_map(target: Target, name: str) -> tuple[Manifest, Manifest]:
    """Return an OmniPipeline and the ConfigMap with its resolved configuration.

    Raises:
        NoSuchPipeline: there is none, or its configuration never resolved.
    """
    async with _client(target) as client:
        manifest = await _pipeline(client, target.space, name)
        config_map = ((manifest.get("status") or {}).get("config") or {}).get("configMap")
        if not config_map:
            raise NoSuchPipeline(f"{target.space}/{name} has no resolved configuration yet")
        return manifest, await client.get(CONFIG_MAPS, target.space, config_map)


@dataclass(frozen=True, slots=True)
class Look:
    """One pipeline at one moment.

    Attributes:
        answers: what its gateways say; empty when none could be asked.
    """

    manifest: Manifest
    observed: Observed
    answers: tuple[gateway_pb2.GetPipelineResponse, ...]


async def look_at(target: Target, name: str) -> Look:
    """Return an OmniPipeline, what belongs to it, and what its gateways say.

    Raises:
        NoSuchPipeline: there is none.
    """
    async with _client(target) as client:
        manifest = await _pipeline(client, target.space, name)
        observed = await _observed(client, manifest)
        paths = [*gateway_paths(manifest, observed)]
        asked = await asyncio.gather(*(_ask(client, path) for path in paths))
        answers = tuple(one for one in asked if one is not None)
        seen = GatewaysSeen(combine(answers), len(paths), len(answers)) if answers else None
        return Look(manifest, replace(observed, gateways=seen), answers)


def gateway_paths(manifest: Mapping[str, Any], observed: Observed) -> Iterator[str]:
    """Yield where the API server passes on to each gateway pod that runs."""
    spec = manifest.get("spec") or {}
    scheme = "https:" if (spec.get("gateway") or {}).get("tls") else ""
    for pod in gateway_pods(observed):
        if pod["status"].get("phase") == "Running":
            name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
            target = f"{scheme}{name}:{GATEWAY_HTTP_PORT}"
            yield f"/api/v1/namespaces/{space}/pods/{target}/proxy/v1/pipeline"


async def _ask(client: Client, path: str) -> gateway_pb2.GetPipelineResponse | None:
    """Return what a gateway says; null when it cannot be asked, as with keys of its own."""
    try:
        async with asyncio.timeout(GATEWAY_SECONDS):
            said = await client.request("GET", path)
        return ParseDict(said, gateway_pb2.GetPipelineResponse(), ignore_unknown_fields=True)
    except (ApiError, TimeoutError, ParseError, ValueError):
        return None


async def plan_file(target: Target, manifest: Manifest, beside: Iterable[Manifest]) -> Plan:
    """Return what applying an object would do, tried by the API server without storing it.

    Args:
        beside: ConfigMaps that would be applied with it, and may be its profiles.

    Raises:
        ApiError: the API server cannot be asked.
    """
    async with _client(target) as client:
        wanted = await _as_applied(client, target, manifest)
        observed = await _observed(client, wanted)
        profiles = {
            (one["metadata"]["name"], key): text
            for one in beside
            for key, text in (one.get("data") or {}).items()
        }
        observed = replace(observed, profiles={**observed.profiles, **profiles})
        world = World(await discover(client), await _release(client), time.time())
        decision = decide(wanted, observed, world)
        found, refused = [], []
        for one in changes(decision, observed.objects):
            try:
                found.append(await _tried(client, one))
            except ApiError as error:
                found.append(one)
                refused.append(f"{one.id.kind} {one.id.name}: {error}")
        return Plan(decision, tuple(found), tuple(refused))


async def _release(client: Client) -> Release:
    """Return the images of the operator that runs here: they decide a new revision's name. Where it
    may not be looked at, they have names that say so."""
    with suppress(ApiError):
        async for one in client.list(DEPLOYMENTS, None, OPERATOR_SELECTOR):
            (container, *_) = one["spec"]["template"]["spec"]["containers"]
            with suppress(ValueError):
                return release_of(container.get("args") or ())
    return RELEASE


def release_of(arguments: Iterable[str]) -> Release:
    """Return the images that an operator is told.

    Raises:
        ValueError: it is told none.
    """
    told = dict(one.lstrip("-").split("=", 1) for one in arguments if "=" in one)
    try:
        return Release(stage_image=told["stage-image"], gateway_image=told["gateway-image"])
    except KeyError as missing:
        raise ValueError(f"no {missing}") from missing


@asynccontextmanager
async def _client(target: Target) -> AsyncIterator[Client]:
    async with open_client(await load_configuration(target.file)) as client:
        yield client


async def _pipeline(client: Client, namespace: str, name: str) -> Manifest:
    try:
        return await client.get(PIPELINES, namespace, name)
    except ApiError as error:
        if not error.is_missing:
            raise
        raise NoSuchPipeline(f"there is no OmniPipeline {namespace}/{name}") from error


async def _as_applied(client: Client, target: Target, manifest: Manifest) -> Manifest:
    """Return the object as it would be stored, with the status of the one that is there."""
    metadata = {"namespace": target.space, **(manifest.get("metadata") or {})}
    named = {**manifest, "metadata": metadata}
    stored = await client.apply(named, dry_run=True)
    stored["metadata"].setdefault("uid", NOT_YET)
    return stored


async def _observed(client: Client, manifest: Mapping[str, Any]) -> Observed:
    metadata = manifest["metadata"]
    namespace, selector = metadata["namespace"], f"{LABEL_PIPELINE}={metadata['name']}"
    objects: dict[ObjectId, Manifest] = {}
    for resource in served(OWNED, await discover(client)):
        async for one in client.list(resource, namespace, selector):
            objects[ObjectId(one["kind"], one["metadata"]["name"])] = one
    pods = tuple([one async for one in client.list(PODS, namespace, selector)])
    return Observed(objects, pods, await ProfileReader(client).read(manifest))


async def _tried(client: Client, change: Change) -> Change:
    """Return a change with the object as the API server would store it.

    Raises:
        ApiError: it would refuse.
    """
    if change.after is None:
        return change
    return replace(change, after=await client.apply(change.after, dry_run=True))
