"""The workers that take pipelines from the queue, and the sign of life they give."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from omni_config.errors import OmniError
from omni_operator.controller.client import ApiError
from omni_operator.controller.logs import EventLogger
from omni_operator.controller.metrics import Metrics
from omni_operator.controller.queue import KeyedQueue
from omni_operator.controller.store import Store
from omni_operator.controller.watched import PipelineKey

logger = EventLogger(__name__)

Turn = Callable[[PipelineKey, Store], Awaitable[float | None]]


class Workers:
    """A bounded number of turns at a time, for as many pipelines as there are.

    Args:
        forget: called with a pipeline that is gone.
    """

    def __init__(
        self,
        queue: KeyedQueue[PipelineKey],
        turn: Turn,
        forget: Callable[[PipelineKey], None],
        store: Store,
        metrics: Metrics,
        resync_seconds: float,
    ) -> None:
        self._queue = queue
        self._turn = turn
        self._forget = forget
        self._store = store
        self._metrics = metrics
        self._resync_seconds = resync_seconds
        self._draw = random.Random()

    async def run(self, count: int) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(count):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            failed, retry_after = True, None
            try:
                wait = await self._one(key)
                failed = False
                if wait is not None:
                    self._queue.add(key, wait)
            except ApiError as error:
                retry_after = error.retry_after
                self._failed(key, error)
            except OmniError as error:
                self._failed(key, error)
            except Exception as error:  # the outermost loop: one pipeline must not stop the others
                logger.failure("turn failed", error, pipeline="/".join(key))
            finally:
                self._queue.done(key, failed=failed, retry_after=retry_after)

    async def _one(self, key: PipelineKey) -> float | None:
        """Take a turn; returns when the next one is due at the latest."""
        if self._store.pipeline(key) is None:
            self._forget(key)
            self._metrics.reconciles.labels("gone").inc()
            return None
        with self._metrics.reconcile_seconds.time():
            wait = await self._turn(key, self._store)
        self._metrics.reconciles.labels("done").inc()
        resync = self._resync_seconds * (0.9 + self._draw.random() / 5)
        return resync if wait is None else min(wait, resync)

    def _failed(self, key: PipelineKey, error: OmniError) -> None:
        self._metrics.reconciles.labels("failed").inc()
        failures = self._queue.failures(key) + 1
        logger.warning("turn failed", pipeline="/".join(key), failures=failures, error=error)
