"""Who may act: the holder of one Lease. A second operator waits until the first is gone.

The holder stops well before others may believe it gone, so that two never act at once, as long as
clocks run at about the same speed; their readings need not agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from omni_config.errors import OmniError
from omni_operator.controller.client import ApiError, Client
from omni_operator.controller.logs import EventLogger
from omni_operator.controller.resources import LEASES
from omni_operator.render.manifest import Manifest

logger = EventLogger(__name__)


class LeaseLost(OmniError):
    """The Lease could not be renewed in time, or somebody else holds it."""


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """How a Lease is kept, in seconds.

    Attributes:
        duration: others wait this long after the last renewal they saw.
        renew_deadline: the holder stops after this long without a renewal.
        retry: pause between attempts.
    """

    namespace: str
    name: str = "omnipipe-operator"
    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0


class Lease:
    """This process's claim to a Lease.

    Args:
        identity: name of this process in the Lease; unique.
        owners: owner references of the Lease, with which it goes.
    """

    def __init__(
        self,
        client: Client,
        identity: str,
        options: LeaseOptions,
        owners: Sequence[Manifest] = (),
    ) -> None:
        self._client = client
        self._identity = identity
        self._options = options
        self._owners = list(owners)
        self._seen: tuple[str, float] | None = None
        self._renewed = 0.0
        self.held = False

    async def acquire(self) -> None:
        """Return once this process holds the Lease."""
        while not await self._try_to_take(_now() + self._options.renew_deadline):  # noqa: ASYNC110
            await asyncio.sleep(self._options.retry)
        self.held = True
        logger.info("lease acquired", lease=self._options.name, identity=self._identity)

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work while the Lease is held, then give it back.

        Raises:
            LeaseLost: the Lease was lost; the work was cancelled.
        """
        await self.acquire()
        working = asyncio.ensure_future(work())
        renewing = asyncio.ensure_future(self._keep())
        try:
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.held = False
            for task in (working, renewing):
                if not task.done():
                    task.cancel()
            await asyncio.gather(working, renewing, return_exceptions=True)
            await self._give_back()
        if not working.cancelled():
            working.result()
        renewing.result()

    async def _keep(self) -> None:
        """Renew until that fails for too long.

        Raises:
            LeaseLost: it did.
        """
        while True:
            await asyncio.sleep(self._options.retry)
            ends = self._renewed + self._options.renew_deadline
            if not await self._try_to_take(ends) and _now() >= ends:
                raise LeaseLost(f"lease {self._options.name} is no longer ours")

    async def _try_to_take(self, ends: float) -> bool:
        """Return whether the Lease is ours, at the latest at a loop time."""
        try:
            async with asyncio.timeout_at(ends):
                return await self._take()
        except TimeoutError:
            return False
        except ApiError as error:
            if not error.is_conflict:
                logger.warning("lease not reached", lease=self._options.name, error=error)
            return False

    async def _take(self) -> bool:
        options, asked = self._options, _now()
        try:
            lease = await self._client.get(LEASES, options.namespace, options.name)
        except ApiError as error:
            if not error.is_missing:
                raise
            await self._client.create(self._manifest({}, {}))
            self._renewed = asked
            return True
        if not self._may_take(lease):
            return False
        await self._client.replace(self._manifest(lease["metadata"], lease.get("spec") or {}))
        self._renewed = asked
        return True

    def _may_take(self, lease: Manifest) -> bool:
        """Whether the Lease is ours, free, or was not renewed for its whole duration while we
        watched."""
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self._identity):
            return True
        version, now = lease["metadata"]["resourceVersion"], _now()
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
            return False
        return now - self._seen[1] > float(spec.get("leaseDurationSeconds") or 15)

    async def _give_back(self) -> None:
        """Free the Lease, so that the next operator need not wait; best effort at the end."""
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(2.0):
                lease = await self._client.get(LEASES, self._options.namespace, self._options.name)
                spec = lease.get("spec") or {}
                if spec.get("holderIdentity") == self._identity:
                    await self._client.replace(lease | {"spec": spec | {"holderIdentity": ""}})

    def _manifest(self, metadata: Manifest, spec: Manifest) -> Manifest:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        same = spec.get("holderIdentity") == self._identity
        taken: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._options.duration)),
            "acquireTime": spec.get("acquireTime", now) if same else now,
            "renewTime": now,
            "leaseTransitions": spec.get("leaseTransitions", 0) + (0 if same or not spec else 1),
        }
        guard = {"resourceVersion": metadata["resourceVersion"]} if metadata else {}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {
                "name": self._options.name,
                "namespace": self._options.namespace,
                "ownerReferences": self._owners,
                **guard,
            },
            "spec": taken,
        }


def _now() -> float:
    return asyncio.get_running_loop().time()
