"""The API server as this operator uses it: few verbs, objects as JSON, errors by reaction.

`kubernetes.aio` brings kubeconfig, service accounts and TLS. Its typed models are not used: they
drop fields that they do not know.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client import ApiClient, Configuration

from omni_config.errors import OmniError
from omni_operator.controller.resources import Resource, resource_of
from omni_operator.names import FIELD_MANAGER
from omni_operator.render.manifest import Manifest

APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
"""Merges lists of Kubernetes' own kinds item by item, such as a pod's conditions by type."""
JSON = "application/json"
REQUEST_SECONDS = 15.0
"""A request that takes longer is given up and tried again with backoff."""
LIST_PAGE = 500


_UNREADABLE = ("failed to convert new object", "failed to create typed patch object")
"""How server-side apply says, as an error of its own (500), that an object has not the form of its
kind: a quantity that is none, a field that does not exist."""


class ApiError(OmniError):
    """The API server refused or could not be reached.

    Attributes:
        status: HTTP status; 0 when there was no answer.
        reason: `reason` of the API server's Status, such as NotFound.
        retry_after: seconds the server asked to wait, if it did.
    """

    def __init__(
        self, status: int, reason: str, message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(f"{message} ({status} {reason})")
        self.status = status
        self.reason = reason
        self.retry_after = retry_after

    @property
    def is_missing(self) -> bool:
        """Whether the object, or its namespace, is not there."""
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        """Whether somebody else wrote first, or it is another object of the same name."""
        return self.status == 409

    @property
    def is_forbidden(self) -> bool:
        """Whether the operator's role does not allow it."""
        return self.status == 403

    @property
    def is_refusal(self) -> bool:
        """Whether the request itself is wrong, so that repeating it as it is cannot help."""
        unreadable = any(words in str(self) for words in _UNREADABLE)
        return self.status in (400, 422) or (self.status == 500 and unreadable)


async def load_configuration(kubeconfig: Path | None) -> Configuration:
    """Return how to reach the API server: a kubeconfig file, or the pod's service account.

    Raises:
        ApiError: there is neither.
    """
    configuration = Configuration()
    try:
        if kubeconfig is not None:
            await kubernetes_config.load_kube_config(
                str(kubeconfig), None, configuration, persist_config=False
            )
        else:
            kubernetes_config.load_incluster_config(configuration)
    except kubernetes_config.ConfigException as error:
        raise ApiError(0, "NoConfiguration", f"no way to reach an API server: {error}") from error
    configuration.retries = False
    return configuration


class Page(NamedTuple):
    """Part of a list.

    Attributes:
        version: resourceVersion of the list, the same for all its pages.
    """

    version: int
    items: tuple[Manifest, ...]


class Client:
    """Requests to one API server."""

    def __init__(self, api: ApiClient, field_manager: str = FIELD_MANAGER) -> None:
        self._api = api
        self._manager = field_manager

    @property
    def configuration(self) -> Configuration:
        """How the API server is reached."""
        return self._api.configuration

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest:
        """Return an object.

        Raises:
            ApiError: it is not there, or may not be read.
        """
        return await self.request("GET", resource.path(namespace, name))

    async def list(
        self, resource: Resource, namespace: str | None = None, selector: str = ""
    ) -> AsyncIterator[Manifest]:
        """Yield the objects of a collection.

        Raises:
            ApiError: it may not be listed, or is not served.
        """
        async for page in self.pages(resource, namespace, selector):
            for item in page.items:
                yield item

    async def pages(
        self, resource: Resource, namespace: str | None = None, selector: str = ""
    ) -> AsyncIterator[Page]:
        """Yield a collection page by page, at least one.

        Raises:
            ApiError: it may not be listed, is not served, or changed too long ago to go on (410).
        """
        query = {"limit": str(LIST_PAGE)} | ({"labelSelector": selector} if selector else {})
        named = {"apiVersion": resource.api_version, "kind": resource.kind}
        while True:
            page = await self.request("GET", resource.path(namespace), query=query)
            metadata = page.get("metadata") or {}
            items = tuple(named | item for item in page.get("items") or ())
            yield Page(int(metadata.get("resourceVersion") or 0), items)
            token = metadata.get("continue")
            if not token:
                return
            query |= {"continue": token}

    async def apply(self, manifest: Mapping[str, Any], *, dry_run: bool = False) -> Manifest:
        """Make the manifest's fields true and own them; returns the whole object.

        Raises:
            ApiError: among others 422 for a change of a field that must not change.
        """
        resource, metadata = resource_of(manifest), manifest["metadata"]
        path = resource.path(metadata["namespace"], metadata["name"])
        query = {"fieldManager": self._manager, "force": "true"}
        if dry_run:
            query["dryRun"] = "All"
        return await self.request("PATCH", path, manifest, APPLY_PATCH, query)

    async def create(self, manifest: Mapping[str, Any]) -> Manifest:
        """Create an object.

        Raises:
            ApiError: 409 when it exists.
        """
        resource = resource_of(manifest)
        path = resource.path(manifest["metadata"]["namespace"])
        return await self.request("POST", path, manifest, query={"fieldManager": self._manager})

    async def replace(self, manifest: Mapping[str, Any], sub: str = "") -> Manifest:
        """Replace an object or its subresource; metadata.resourceVersion guards it.

        Raises:
            ApiError: 409 when somebody else wrote first.
        """
        resource, metadata = resource_of(manifest), manifest["metadata"]
        path = resource.path(metadata["namespace"], metadata["name"], sub)
        return await self.request("PUT", path, manifest, query={"fieldManager": self._manager})

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """Delete exactly the object with this UID; one that is gone already is fine.

        Raises:
            ApiError: the server refused.
        """
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        try:
            await self.request("DELETE", resource.path(namespace, name), options)
        except ApiError as error:
            if not error.is_missing and not error.is_conflict:
                raise

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> Manifest:
        """Send one request and return the answer's JSON.

        Raises:
            ApiError: no answer in time, or a status of 300 and above.
        """
        url = self._api.configuration.host + path
        if query:
            url += f"?{urlencode(query)}"
        headers = {"Content-Type": content_type, "Accept": JSON, **self._api.default_headers}
        await self._api.update_params_for_auth(
            headers, [], ["BearerToken"], path, method, body, request_auth=None
        )
        try:
            answer = await self._api.call_api(
                method, url, headers, body, _request_timeout=REQUEST_SECONDS
            )
            data = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            what = str(error) or type(error).__name__
            raise ApiError(0, "Unreachable", f"{method} {path}: {what}") from error
        if answer.status >= 300:
            raise _refused(method, path, answer.status, data, answer.headers.get("Retry-After"))
        content: Manifest = json.loads(data)
        return content


def _refused(method: str, path: str, status: int, data: bytes, retry_after: str | None) -> ApiError:
    try:
        said = json.loads(data)
    except ValueError:
        said = {}
    said = said if isinstance(said, dict) else {}
    message = said.get("message") or data[:200].decode(errors="replace")
    wait = float(retry_after) if retry_after and retry_after.isdecimal() else None
    return ApiError(status, said.get("reason") or "Unknown", f"{method} {path}: {message}", wait)


@asynccontextmanager
async def open_client(configuration: Configuration) -> AsyncIterator[Client]:
    """A client for as long as the context lasts."""
    async with ApiClient(configuration) as api:
        yield Client(api)
