"""One operator: waits for its Lease, then watches, works and looks after itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import aiohttp

from omni_operator.controller.audit import audit
from omni_operator.controller.authority import load_secret, owner_references
from omni_operator.controller.client import ApiError, Client, load_configuration, open_client
from omni_operator.controller.discovery import discover
from omni_operator.controller.events import EventRecorder
from omni_operator.controller.executor import Executor
from omni_operator.controller.gateways import GrpcTraffic, Traffic
from omni_operator.controller.health import serve_health, serve_metrics
from omni_operator.controller.lease import Lease
from omni_operator.controller.logs import EventLogger
from omni_operator.controller.metrics import Metrics
from omni_operator.controller.options import Options
from omni_operator.controller.profiles import ProfileReader
from omni_operator.controller.queue import KeyedQueue
from omni_operator.controller.reconciler import Reconciler
from omni_operator.controller.resources import OWNED, PIPELINES, Resource, served
from omni_operator.controller.status_writer import StatusWriter
from omni_operator.controller.store import Store
from omni_operator.controller.watched import PipelineKey, watched
from omni_operator.controller.watches import Watches
from omni_operator.controller.workers import Workers
from omni_operator.plan.capabilities import Capabilities
from omni_operator.plan.world import World
from omni_operator.render.manifest import Manifest

logger = EventLogger(__name__)

BURST_SECONDS = 0.1


class Operator:
    """An operator in this event loop.

    Args:
        traffic: how gateways and pods are reached; the network when absent.
        on_spawned: called after each start of kopf, which takes SIGINT and SIGTERM for itself.
    """

    def __init__(
        self,
        options: Options,
        traffic: Traffic | None = None,
        on_spawned: Callable[[], None] = lambda: None,
    ) -> None:
        self._options = options
        self._traffic = traffic
        self._on_spawned = on_spawned
        self.metrics = Metrics()
        self.queue: KeyedQueue[PipelineKey] = KeyedQueue(options.backoff)
        self.store = Store(self._noticed)
        self._watches: Watches | None = None
        self._lease: Lease | None = None
        self._cluster = Capabilities()
        self._generations: dict[PipelineKey, int] = {}
        self.health_port = 0
        self.metrics_port = 0
        self._gauges()

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            LeaseLost: another operator acts now; the process should end and start over.
            ApiError: the API server is not there at the start.
        """
        options = self._options
        configuration = await load_configuration(options.kubeconfig)
        async with (
            open_client(configuration) as client,
            serve_health(options.health_port, self.faults, self.unready) as self.health_port,
            serve_metrics(options.metrics_port, self.metrics.registry) as self.metrics_port,
        ):
            namespace = options.lease.namespace
            owners = await owner_references(client, namespace, options.service_account)
            self._lease = Lease(client, options.identity, options.lease, owners)
            await self._lease.run(lambda: self._act(client, owners))

    def faults(self) -> Iterator[str]:
        """Yield why this process should be restarted; a waiting operator has no faults."""
        now, limit = asyncio.get_running_loop().time(), self._options.stalled_seconds
        for key, since in self.queue.working.items():
            if now - since > limit:
                yield f"the turn of {'/'.join(key)} takes {now - since:.0f} s"
        waiting = self.queue.oldest_ready_seconds()
        if waiting > limit:
            yield f"a pipeline has been waiting for a worker for {waiting:.0f} s"

    def unready(self) -> Iterator[str]:
        """Yield why this operator does not act and does not stand by either."""
        if self._lease is None:
            yield "the API server was not reached yet"

    async def _act(self, client: Client, owners: Sequence[Manifest]) -> None:
        """Do an operator's work; the Lease is held."""
        options = self._options
        self._cluster = await discover(client)
        secret = await load_secret(client, options.lease.namespace, owners)
        kinds = watched(served(OWNED, self._cluster))
        watches = Watches(client, self.store, kinds, options.namespaces, self._on_spawned)
        self._watches = watches
        async with self._reaching() as traffic:
            reconciler = self._reconciler(client, traffic, secret)
            workers = Workers(
                self.queue,
                reconciler.reconcile,
                partial(self._forget, reconciler),
                self.store,
                self.metrics,
                options.resync_seconds,
            )
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(watches.run())
                await watches.filled.wait()
                tasks.create_task(workers.run(options.workers))
                tasks.create_task(self._audit_watches(client, watches))
                tasks.create_task(self._rediscover(client, watches))

    @asynccontextmanager
    async def _reaching(self) -> AsyncIterator[Traffic]:
        if self._traffic is not None:
            yield self._traffic
            return
        async with aiohttp.ClientSession() as session:
            yield GrpcTraffic(session)

    def _reconciler(self, client: Client, traffic: Traffic, secret: bytes) -> Reconciler:
        options = self._options
        return Reconciler(
            executor=Executor(client, traffic, self.metrics),
            status=StatusWriter(client),
            events=EventRecorder(client),
            profiles=ProfileReader(client, min(5.0, options.profile_seconds)),
            traffic=traffic,
            metrics=self.metrics,
            world=lambda: World(self._cluster, options.release, time.time()),
            secret=secret,
            check_secret_seconds=options.resync_seconds,
            profile_seconds=options.profile_seconds,
        )

    def _noticed(self, key: PipelineKey, resource: Resource) -> None:
        """Give a pipeline a turn. A person's edit does not wait for what failed before."""
        manifest = self.store.pipeline(key) if resource is PIPELINES else None
        generation = manifest["metadata"].get("generation", 0) if manifest else None
        if generation is None or self._generations.get(key) == generation:
            # Children change in bursts, and our own writes come back as events.
            self.queue.add(key, BURST_SECONDS)
            return
        self._generations[key] = generation
        self.queue.hurry(key)

    def _forget(self, reconciler: Reconciler, key: PipelineKey) -> None:
        self._generations.pop(key, None)
        reconciler.forget(key)

    async def _audit_watches(self, client: Client, watches: Watches) -> None:
        """Look from time to time for what watches missed; a silent one is started again."""
        while True:
            await asyncio.sleep(self._options.audit_seconds)
            with suppress(ApiError):
                silent = await audit(client, self.store, self._options.namespaces)
                for one in silent:
                    self.metrics.watch_gaps.labels(one.kind.resource.kind).inc(one.missed)
                if silent:
                    watches.restart()

    async def _rediscover(self, client: Client, watches: Watches) -> None:
        """Notice what the cluster has come to offer, or no longer offers."""
        while True:
            await asyncio.sleep(self._options.discovery_seconds)
            with suppress(ApiError):
                found = await discover(client)
                if found == self._cluster:
                    continue
                logger.info("cluster changed", kinds=",".join(sorted(found.kinds)))
                self._cluster = found
                kinds = watched(served(OWNED, found))
                if kinds != watches.kinds:
                    watches.kinds = kinds
                    watches.restart()
                for key in self.store.pipelines():
                    self.queue.add(key)

    def _gauges(self) -> None:
        metrics = self.metrics
        metrics.gauge("queue_length", "Pipelines that are due.", self.queue.ready)
        metrics.gauge(
            "oldest_seconds", "Longest wait for a worker.", self.queue.oldest_ready_seconds
        )
        metrics.gauge("working", "Turns going on.", lambda: len(self.queue.working))
        metrics.gauge(
            "leader", "1 while this operator acts.", lambda: bool(self._lease and self._lease.held)
        )
        metrics.gauge(
            "watch_restarts",
            "How often the watches had to be started again.",
            lambda: self._watches.restarts if self._watches else 0,
        )
