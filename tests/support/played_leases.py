"""Leases of an API server in memory, with versions that guard them and a network that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from omni_operator.controller.client import ApiError
from omni_operator.controller.resources import Resource
from omni_operator.render.manifest import Manifest

Weather = Callable[[], tuple[float, bool]]
"""Gives for one request the seconds it takes, and whether its answer arrives."""


class LeaseServer:
    """Holds Leases by namespace and name."""

    def __init__(self) -> None:
        self.leases: dict[tuple[str, str], Manifest] = {}
        self._versions = 0

    def write(self, manifest: Manifest) -> Manifest:
        """Store a Lease.

        Raises:
            ApiError: 409 when it has changed since it was read, or exists already.
        """
        metadata = manifest["metadata"]
        key = metadata["namespace"], metadata["name"]
        known = self.leases.get(key, {}).get("metadata", {}).get("resourceVersion")
        if metadata.get("resourceVersion") != known:
            raise ApiError(409, "Conflict", "the object has been modified")
        self._versions += 1
        made = deepcopy(manifest)
        made["metadata"] |= {"resourceVersion": str(self._versions)}
        self.leases[key] = made
        return deepcopy(made)

    def read(self, namespace: str, name: str) -> Manifest:
        """Return a Lease.

        Raises:
            ApiError: 404 when there is none.
        """
        if (namespace, name) not in self.leases:
            raise ApiError(404, "NotFound", "no such lease")
        return deepcopy(self.leases[namespace, name])


class LeaseClient:
    """One process's way to the server."""

    def __init__(self, server: LeaseServer, weather: Weather = lambda: (0.0, True)) -> None:
        self._server = server
        self._weather = weather

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest:
        """Read a Lease."""
        return await self._through(lambda: self._server.read(namespace or "", name))

    async def create(self, manifest: Manifest) -> Manifest:
        """Make a Lease."""
        return await self._through(lambda: self._server.write(manifest))

    async def replace(self, manifest: Manifest, sub: str = "") -> Manifest:
        """Write a Lease."""
        return await self._through(lambda: self._server.write(manifest))

    async def _through(self, act: Callable[[], Any]) -> Manifest:
        seconds, arrives = self._weather()
        await asyncio.sleep(seconds / 2)
        answer: Manifest = act()
        await asyncio.sleep(seconds / 2)
        if not arrives:
            raise ApiError(0, "Unreachable", "the connection was cut")
        return answer
