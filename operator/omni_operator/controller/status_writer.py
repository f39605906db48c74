"""The one writer of status: the whole of it, only when it changed, again after a conflict."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from omni_operator.api.status import OmniPipelineStatus, StatusModel
from omni_operator.controller.client import ApiError, Client
from omni_operator.controller.resources import Resource, resource_of
from omni_operator.render.manifest import Manifest

ATTEMPTS = 5
PAUSE_SECONDS = 2.0
"""Progress is written this often at most; a new generation or another Ready is not held back."""


def as_json(status: StatusModel) -> Manifest:
    """Return a status as the API server stores it: without what says nothing."""
    content: Manifest = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return content


class StatusWriter:
    """Writes the status subresource of pipelines and groups."""

    def __init__(self, client: Client, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._client = client
        self._pause_seconds = pause_seconds
        self._written: dict[str, float] = {}

    def pause(self, manifest: Mapping[str, Any], status: OmniPipelineStatus) -> float:
        """Return the seconds for which a status should not be written yet; 0 for none.

        Pods that start one after the other would otherwise cost a write each.
        """
        before, after = manifest.get("status") or {}, as_json(status)
        if _matters(before, after):
            return 0.0
        now = time.monotonic()
        self._written = {uid: at for uid, at in self._written.items() if at > now}
        return max(0.0, self._written.get(manifest["metadata"]["uid"], 0.0) - now)

    async def write(self, manifest: Mapping[str, Any], status: StatusModel) -> Manifest | None:
        """Make the status true; returns the object if it had to be written.

        Args:
            manifest: the object as it was last seen.

        Raises:
            ApiError: it cannot be written; 404 when the object is gone.
        """
        wanted, seen = as_json(status), manifest
        for _ in range(ATTEMPTS):
            if seen.get("status") == wanted:
                return None
            try:
                written = await self._client.replace(_with_status(seen, wanted), "status")
                uid = manifest["metadata"]["uid"]
                self._written[uid] = time.monotonic() + self._pause_seconds
                return written
            except ApiError as error:
                if not error.is_conflict:
                    raise
            seen = await self._fresh(resource_of(manifest), manifest["metadata"])
        raise ApiError(409, "Conflict", f"status of {manifest['metadata']['name']} keeps changing")

    async def _fresh(self, resource: Resource, metadata: Mapping[str, Any]) -> Manifest:
        """Return the object anew, and never another one of the same name."""
        found = await self._client.get(resource, metadata["namespace"], metadata["name"])
        if found["metadata"]["uid"] != metadata["uid"]:
            raise ApiError(404, "NotFound", f"{metadata['name']} was replaced by another object")
        return found


def _matters(before: Manifest, after: Manifest) -> bool:
    """Whether a change of status is one that somebody may wait for."""
    if before.get("observedGeneration") != after.get("observedGeneration"):
        return True
    return _ready(before) != _ready(after)


def _ready(status: Manifest) -> str | None:
    conditions = status.get("conditions") or ()
    return next((one["status"] for one in conditions if one["type"] == "Ready"), None)


def _with_status(seen: Mapping[str, Any], status: Manifest) -> Manifest:
    metadata = seen["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion")
    return {
        "apiVersion": seen["apiVersion"],
        "kind": seen["kind"],
        "metadata": {key: metadata[key] for key in kept},
        "spec": seen.get("spec") or {},
        "status": status,
    }
