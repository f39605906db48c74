"""Reading a cluster for `kubectl omni`: one pipeline, what it owns, and what the API server says to
a dry run."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from omni_config.errors import OmniError
from omni_operator.controller.client import ApiError, Client, load_configuration, open_client
from omni_operator.controller.discovery import discover
from omni_operator.controller.profiles import ProfileReader
from omni_operator.controller.resources import CONFIG_MAPS, OWNED, PIPELINES, PODS, served
from omni_operator.display.changes import Change, changes
from omni_operator.names import LABEL_PIPELINE
from omni_operator.plan.decision import decide
from omni_operator.plan.world import Decision, ObjectId, Observed, World
from omni_operator.render.manifest import Manifest
from omni_operator.render.view import Release

NOT_YET = "00000000-0000-0000-0000-000000000000"
"""UID of an object that a plan makes up because it was not created yet."""
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


async def read_observed(target: Target, name: str) -> tuple[Manifest, Observed]:
    """Return an OmniPipeline and what belongs to it.

    Raises:
        NoSuchPipeline: there is none.
    """
    async with _client(target) as client:
        manifest = await _pipeline(client, target.space, name)
        return manifest, await _observed(client, manifest)


async def plan_file(target: Target, manifest: Manifest) -> Plan:
    """Return what applying an object would do, tried by the API server without storing it.

    Raises:
        ApiError: the API server cannot be asked.
    """
    async with _client(target) as client:
        wanted = await _as_applied(client, target, manifest)
        observed = await _observed(client, wanted)
        world = World(await discover(client), RELEASE, time.time())
        decision = decide(wanted, observed, world)
        found, refused = [], []
        for one in changes(decision, observed.objects):
            try:
                found.append(await _tried(client, one))
            except ApiError as error:
                found.append(one)
                refused.append(f"{one.id.kind} {one.id.name}: {error}")
        return Plan(decision, tuple(found), tuple(refused))


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
