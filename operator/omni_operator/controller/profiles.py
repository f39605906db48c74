"""Profile ConfigMaps, read by name: they belong to a platform team and carry no label of ours.

A short memory keeps a thousand pipelines with one profile from asking a thousand times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from omni_operator.controller.client import ApiError, Client
from omni_operator.controller.resources import CONFIG_MAPS
from omni_operator.resolution import Profiles

REMEMBERED_SECONDS = 5.0


class ProfileReader:
    """Reads profiles of pipelines."""

    def __init__(self, client: Client, remembered_seconds: float = REMEMBERED_SECONDS) -> None:
        self._client = client
        self._remembered_seconds = remembered_seconds
        self._known: dict[tuple[str, str], tuple[float, Mapping[str, str]]] = {}

    async def read(self, manifest: Mapping[str, Any]) -> Profiles:
        """Return the text of every profile of an object that exists, by name and key.

        Raises:
            ApiError: a ConfigMap cannot be read for another reason than that it is not there.
        """
        namespace = manifest["metadata"]["namespace"]
        found: dict[tuple[str, str], str] = {}
        for name in dict.fromkeys(_names(manifest)):
            for key, text in (await self._data(namespace, name)).items():
                found[name, key] = text
        return found

    async def _data(self, namespace: str, name: str) -> Mapping[str, str]:
        now = asyncio.get_running_loop().time()
        known = self._known.get((namespace, name))
        if known is not None and now - known[0] < self._remembered_seconds:
            return known[1]
        self._known = {key: one for key, one in self._known.items() if now - one[0] < 60.0}
        try:
            live = await self._client.get(CONFIG_MAPS, namespace, name)
        except ApiError as error:
            if not error.is_missing:
                raise
            live = {}
        data: Mapping[str, str] = live.get("data") or {}
        self._known[namespace, name] = now, data
        return data


def _names(manifest: Mapping[str, Any]) -> Iterable[str]:
    """Return the names of an object that may not even have the right shape."""
    refs = (manifest.get("spec") or {}).get("profileRefs")
    for ref in refs if isinstance(refs, list) else ():
        if isinstance(ref, Mapping) and isinstance(ref.get("name"), str):
            yield ref["name"]
