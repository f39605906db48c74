"""The one writer of status: the whole of it, only when it changed, again after a conflict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omni_operator.api.status import StatusModel
from omni_operator.controller.client import ApiError, Client
from omni_operator.controller.resources import Resource, resource_of
from omni_operator.render.manifest import Manifest

ATTEMPTS = 5


def as_json(status: StatusModel) -> Manifest:
    """Return a status as the API server stores it: without what says nothing."""
    content: Manifest = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return content


class StatusWriter:
    """Writes the status subresource of pipelines and groups."""

    def __init__(self, client: Client) -> None:
        self._client = client

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
                return await self._client.replace(_with_status(seen, wanted), "status")
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
