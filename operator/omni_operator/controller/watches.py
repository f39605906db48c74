"""Runs kopf for its watches only: no finalizers, no annotations, no CRD scanning, no own Events.

Before each start the store is filled from lists: kopf's own indexes would hold back every event
until the last object was indexed, at a cost that grows with the cube of their number. kopf ends
when a watch is refused, for instance because a role was revoked; it is started again with backoff.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import kopf
from kopf._cogs.structs.credentials import Vault  # types of public arguments, without public names
from kopf._core.engines.peering import Identity
from kubernetes.aio.client import Configuration

from omni_operator.controller.audit import fill
from omni_operator.controller.client import ApiError, Client
from omni_operator.controller.logs import EventLogger
from omni_operator.controller.options import own_identity
from omni_operator.controller.queue import Backoff
from omni_operator.controller.store import Store
from omni_operator.controller.watched import Watched

logger = EventLogger(__name__)

LIST_PAGE = 500
SERVER_SECONDS = 300
"""A watch is renewed this often: one that died without a word is not trusted for long."""
REQUEST_SECONDS = 15.0
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Pauses of kopf's own retries; afterwards the watch is given up and all start again."""
IDLE_WORKER_SECONDS = 0.5
CANCEL_SECONDS = 0.5
HEALTHY_SECONDS = 60.0
"""A run of kopf that lasted this long was no failed start."""
SETTLED_SECONDS = 2.0
"""A list of kopf's is over when none of its objects has come for this long."""


class Watches:
    """Keeps the store filled.

    Args:
        namespaces: those to watch; all when empty.
        on_spawned: called after each start of kopf, which takes SIGINT and SIGTERM for itself.

    Attributes:
        kinds: what is watched; read again at each start.
        filled: set once the store knows all there is.
        restarts: how often kopf had to be started again.
    """

    def __init__(
        self,
        client: Client,
        store: Store,
        kinds: tuple[Watched, ...],
        namespaces: tuple[str, ...],
        on_spawned: Callable[[], None] = lambda: None,
    ) -> None:
        self.kinds = kinds
        self._client = client
        self._store = store
        self._namespaces = namespaces
        self._on_spawned = on_spawned
        self._backoff = Backoff(first=0.5, limit=30.0)
        self._run: asyncio.Task[None] | None = None
        self._relisted: set[Watched] = set()
        self.filled = asyncio.Event()
        self.restarts = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_watching())
            tasks.create_task(self._follow_lists())

    def restart(self) -> None:
        """Start all watches again, because one of them has gone silent or a kind has come."""
        if self._run is not None:
            self._run.cancel()

    async def _keep_watching(self) -> None:
        loop, failures, draw = asyncio.get_running_loop(), 0, random.Random()
        while True:
            began = loop.time()
            self._run = asyncio.create_task(self._watch(), name="kopf")
            try:
                await asyncio.wait((self._run,))
            finally:
                self._run.cancel()
                await asyncio.gather(self._run, return_exceptions=True)
            failures = 1 if loop.time() - began > HEALTHY_SECONDS else failures + 1
            wait = self._backoff.seconds(failures, draw)
            self.restarts += 1
            logger.warning("watches ended", why=_why(self._run), again_in_seconds=round(wait, 1))
            await asyncio.sleep(wait)

    async def _watch(self) -> None:
        kinds = self.kinds
        self._store.keep(kinds)
        for kind in kinds:
            await fill(self._client, self._store, kind, self._namespaces)
        self.filled.set()
        vault = Vault()
        tasks = await kopf.spawn_tasks(
            registry=self._registry(kinds),
            settings=_settings(kinds),
            vault=vault,
            # kopf's own would name the user, and a container's UID has no name.
            identity=Identity(own_identity()),
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
        )
        self._on_spawned()
        self._relisted.update(kinds)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end({*tasks, *_watchers(self._namespaces)})
            await vault.close()
        for task in done:
            task.result()

    async def _follow_lists(self) -> None:
        """Find what vanished before a list of kopf's, of which kopf says nothing."""
        while True:
            await asyncio.sleep(SETTLED_SECONDS)
            settled, self._relisted = self._relisted, set()
            if not settled:
                continue
            await asyncio.sleep(SETTLED_SECONDS)
            for kind in settled - self._relisted:
                with suppress(ApiError):
                    await fill(self._client, self._store, kind, self._namespaces)

    def _registry(self, kinds: tuple[Watched, ...]) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        for kind in kinds:
            at = (kind.resource.group, kind.resource.version, kind.resource.plural)
            kopf.on.event(*at, id=kind.resource.kind, registry=registry)(self._noticing(kind))

        @kopf.on.login(registry=registry)
        async def login(**_: object) -> kopf.ConnectionInfo:
            return await _connection(self._client.configuration)

        return registry

    def _noticing(self, kind: Watched) -> Callable[..., Any]:
        async def notice(event: kopf.RawEvent, **_: object) -> None:
            if event["type"] == "DELETED":
                self._store.ended(kind.resource, event["object"])
                return
            if event["type"] is None:
                self._relisted.add(kind)
            self._store.heard(kind.resource, event["object"])

        return notice


class _NoDiffBase(kopf.DiffBaseStorage):
    """kopf would copy every object of every event to find out what changed since it last acted."""

    def build(self, **_: object) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: object) -> None:
        return None

    def store(self, **_: object) -> None:
        """Keep nothing."""


async def _connection(configuration: Configuration) -> kopf.ConnectionInfo:
    """Return the client's credentials for kopf; a service account's token is read again."""
    bearer = (await configuration.auth_settings()).get("BearerToken")
    scheme, _, token = bearer["value"].partition(" ") if bearer else ("", "", "")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert or None,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file or None,
        private_key_path=configuration.key_file or None,
        scheme=scheme or None,
        token=token or None,
    )


def _settings(kinds: tuple[Watched, ...]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = None
    settings.queueing.idle_timeout = IDLE_WORKER_SECONDS
    settings.networking.request_timeout = REQUEST_SECONDS
    settings.networking.connect_timeout = REQUEST_SECONDS
    settings.networking.error_backoffs = RETRY_SECONDS
    settings.watching.server_timeout = SERVER_SECONDS
    settings.watching.chunk_size = LIST_PAGE
    settings.persistence.diffbase_storage = _NoDiffBase()
    for kind in kinds:
        if kind.selector:
            at = kind.resource.group, kind.resource.version, kind.resource.plural
            settings.watching.label_selectors[at] = kind.selector
    return settings


def _watchers(namespaces: tuple[str, ...]) -> set[asyncio.Task[Any]]:
    """Return the tasks by which kopf watches these namespaces; it keeps them to itself."""
    ends = tuple(f"@{namespace}" for namespace in namespaces or (None,))
    return {
        task
        for task in asyncio.all_tasks()
        if task.get_name().startswith("watcher for ") and task.get_name().endswith(ends)
    }


async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended.

    A watch of kopf loses a cancellation that meets it between two requests, and would go on for
    ever, as would whoever waits for it.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_SECONDS)


def _why(task: asyncio.Task[None]) -> str:
    if task.cancelled():
        return "restart"
    return repr(task.exception())
