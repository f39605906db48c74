"""The one place that decides whether a call may go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omni_gateway.access.keys import ApiKey, InvalidKeyFile, digest_of, read_keys
from omni_gateway.access.quota import Quota
from omni_gateway.errors import Unauthenticated
from omni_runtime.logging import EventLogger

logger = EventLogger(__name__)

LOOK_SECONDS = 2.0
"""How often the files with keys are read again."""
ANYBODY = "-"
"""Name of the caller where no key is asked for."""
_SCHEME = "bearer "


class Guard:
    """Lets calls in by their API key.

    Args:
        path: file or directory with keys; null lets everybody in.

    Raises:
        InvalidKeyFile: the keys cannot be read.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._keys = read_keys(path) if path is not None else {}
        self._quotas: dict[str, Quota] = {}

    @property
    def open(self) -> bool:
        """Whether everybody is let in."""
        return self._path is None

    def identify(self, authorization: str | None) -> ApiKey | None:
        """Return the key of a call; null where none is asked for.

        Args:
            authorization: `Bearer KEY`, as in the HTTP header.

        Raises:
            Unauthenticated: there is no key, or it is not accepted.
        """
        if self.open:
            return None
        given = authorization or ""
        if not given.lower().startswith(_SCHEME):
            raise Unauthenticated("an API key is needed: Authorization: Bearer KEY")
        # Looking up a digest tells nothing about the keys by how long it takes.
        key = self._keys.get(digest_of(given[len(_SCHEME) :].strip()))
        if key is None:
            raise Unauthenticated("the API key is not accepted")
        return key

    @contextmanager
    def using(self, key: ApiKey | None) -> Iterator[None]:
        """Count a request against the limits of its key, for as long as the context lasts.

        Raises:
            RateLimited: the limits are reached.
        """
        if key is None:
            yield
            return
        now = time.monotonic()
        quota = self._quotas.get(key.name) or Quota.full(key, now)
        self._quotas[key.name] = quota.limited_by(key)
        quota.begin(now)
        try:
            yield
        finally:
            quota.end()

    async def follow(self) -> None:
        """Read the keys again whenever they change, until cancelled.

        Keys that cannot be read change nothing: those that were accepted go on being accepted.
        """
        problem = ""
        while self._path is not None:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                self.reload()
                problem = ""
            except InvalidKeyFile as error:
                if str(error) != problem:
                    logger.warning("API keys not reloaded", reason=error)
                problem = str(error)

    def reload(self) -> None:
        """Read the keys again.

        Raises:
            InvalidKeyFile: they cannot be read; those that were accepted stay.
        """
        if self._path is None:
            return
        found = read_keys(self._path)
        if found == self._keys:
            return
        self._keys = found
        names = {key.name for key in found.values()}
        for name in [name for name in self._quotas if name not in names]:
            if not self._quotas[name].in_flight:
                del self._quotas[name]
        logger.info("API keys reloaded", keys=len(found))


def caller_of(key: ApiKey | None) -> str:
    """Return the name of a caller, for logs."""
    return ANYBODY if key is None else key.name
