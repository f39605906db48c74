"""A scheduler for stages that turn one payload into one payload: preprocessing, encoders, merges.

Either batches on one thread or computes several requests at once on a pool; never both, because a
batch already shares the device and a pool of batches would only fight over it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from omni_config.errors import OmniError
from omni_runtime.batching import BatchLimits, BatchQueue
from omni_runtime.logging import EventLogger
from omni_runtime.scheduler import (
    Aborted,
    AbortRequest,
    Admitted,
    Drain,
    Heartbeat,
    Inbox,
    InboxMessage,
    NewRequest,
    Outbox,
    RequestError,
    Result,
)
from omni_wire.errors import StageFailed
from omni_wire.identity import RequestKey
from omni_wire.messages import Payload

logger = EventLogger(__name__)

Compute = Callable[[Payload], Payload]
"""Turns one payload into the next; what it raises fails that request alone."""

BatchCompute = Callable[[Sequence[Payload]], Sequence[Payload | Exception]]
"""Turns a batch into as many outcomes, in order; an exception in the result fails that item alone.
"""


class SimpleScheduler:
    """Runs `compute` over payloads.

    Args:
        compute: computes one payload; exclusive with `compute_batch`.
        compute_batch: computes up to `limits.max_size` payloads together.
        limits: what closes a batch; only with `compute_batch`.
        cost: cost of a payload in the unit of `limits.max_cost`.
        max_concurrency: threads that compute at once; above 1 excludes `compute_batch`.

    Raises:
        ValueError: the arguments contradict each other.
    """

    def __init__(
        self,
        compute: Compute | None = None,
        *,
        compute_batch: BatchCompute | None = None,
        limits: BatchLimits | None = None,
        cost: Callable[[Payload], float] | None = None,
        max_concurrency: int = 1,
    ) -> None:
        if (compute is None) == (compute_batch is None):
            raise ValueError("give exactly one of compute and compute_batch")
        if compute_batch is not None and max_concurrency > 1:
            raise ValueError("max_concurrency above 1 excludes compute_batch")
        if compute is not None and limits is not None and limits.max_size > 1:
            raise ValueError("a batch needs compute_batch")
        self.inbox = Inbox()
        self.heartbeat = Heartbeat()
        self._compute_batch = compute_batch or _one_by_one(compute)
        self._queue: BatchQueue[Payload] = BatchQueue(limits or BatchLimits(), cost)
        self._max_concurrency = max_concurrency
        self._running: set[RequestKey] = set()
        self._aborted: set[RequestKey] = set()
        self._claims = threading.Lock()
        self._stopped = False
        self._draining = False
        self._crash: BaseException | None = None

    @property
    def in_flight(self) -> int:
        """Requests that wait or are being computed."""
        return len(self._queue) + len(self._running)

    @property
    def can_step(self) -> bool:
        """Whether `advance` would compute something now."""
        due_at = self._queue.due_at()
        return due_at is not None and (self._draining or due_at <= time.monotonic())

    def stop(self) -> None:
        """Make `run` return once what is being computed is done; what waits is dropped."""
        self._stopped = True
        self.inbox.wake()

    def run(self, outbox: Outbox) -> None:
        """Body of the scheduler's thread."""
        if self._max_concurrency == 1:
            self._loop(outbox, lambda batch: self._compute(batch, outbox))
            return
        with ThreadPoolExecutor(self._max_concurrency, "compute") as pool:
            self._loop(
                outbox,
                lambda batch: pool.submit(self._compute, batch, outbox).add_done_callback(
                    self._computed
                ),
            )

    def advance(self, outbox: Outbox) -> bool:
        """Drain the inbox and compute what is due on this thread; return whether anything was."""
        return self._advance(outbox, lambda batch: self._compute(batch, outbox))

    def _computed(self, future: Future[None]) -> None:
        self._crash = future.exception() or self._crash
        self.inbox.wake()

    @property
    def _has_room(self) -> bool:
        return len(self._running) < self._max_concurrency

    def _loop(self, outbox: Outbox, start: Callable[[list[Payload]], None]) -> None:
        while not self._stopped:
            self.inbox.wait(self._wait_seconds() if self._has_room else None)
            self._advance(outbox, start)
            if self._crash is not None:
                raise self._crash

    def _advance(self, outbox: Outbox, start: Callable[[list[Payload]], None]) -> bool:
        for message in self.inbox.drain():
            self._take(message, outbox)
        started = False
        # Messages that come meanwhile are looked at between batches: an abort may be among them.
        while self._has_room and not len(self.inbox):
            batch = self._queue.take(time.monotonic(), hurry=self._draining)
            if not batch:
                break
            self._begin(batch, outbox)
            start(batch)
            started = True
        return started

    def _wait_seconds(self) -> float | None:
        due_at = self._queue.due_at()
        if due_at is None:
            return None
        return 0.0 if self._draining else max(0.0, due_at - time.monotonic())

    def _take(self, message: InboxMessage, outbox: Outbox) -> None:
        match message:
            case NewRequest(payload):
                self._enqueue(payload, outbox)
            case AbortRequest(key):
                self._abort(key, outbox)
            case Drain():
                self._draining = True
            case _:
                # Stalls hold back rows, and there are none here: a payload is sent whatever the
                # credit.
                pass

    def _enqueue(self, payload: Payload, outbox: Outbox) -> None:
        try:
            self._queue.add(payload, time.monotonic())
        except Exception as error:  # the author's cost function
            outbox.put(RequestError(payload.key, failure_of(error)))

    def _abort(self, key: RequestKey, outbox: Outbox) -> None:
        if self._queue.remove(lambda payload: payload.key == key):
            outbox.put(Aborted(key))
            return
        with self._claims:
            if key in self._running:
                self._aborted.add(key)

    def _begin(self, batch: list[Payload], outbox: Outbox) -> None:
        with self._claims:
            self._running.update(payload.key for payload in batch)
        for payload in batch:
            outbox.put(Admitted(payload.key))

    def _compute(self, batch: list[Payload], outbox: Outbox) -> None:
        started = self.heartbeat.begin()
        try:
            outcomes = self._outcomes(batch)
        finally:
            self.heartbeat.end(started)
        for payload, outcome in zip(batch, outcomes, strict=True):
            self._end(payload.key, outcome, outbox)

    def _outcomes(self, batch: list[Payload]) -> Sequence[Payload | Exception]:
        try:
            outcomes = self._compute_batch(batch)
        except Exception as error:  # the author's code; the whole batch fails and the stage goes on
            return [error] * len(batch)
        if len(outcomes) == len(batch):
            return outcomes
        mismatch = ValueError(f"the batch of {len(batch)} returned {len(outcomes)} outcomes")
        return [mismatch] * len(batch)

    def _end(self, key: RequestKey, outcome: Payload | Exception, outbox: Outbox) -> None:
        with self._claims:
            self._running.remove(key)
            aborted = key in self._aborted
            self._aborted.discard(key)
        if aborted:
            outbox.put(Aborted(key))
        elif isinstance(outcome, Exception):
            outbox.put(RequestError(key, failure_of(outcome)))
        else:
            outbox.put(Result(key, outcome.data, outcome.request))


def failure_of(error: Exception) -> OmniError:
    """Return `error` as the typed failure of one request.

    What is not one of ours is a fault of the model's code: it is logged with its traceback, because
    the request carries only a sentence.
    """
    if isinstance(error, OmniError):
        return error
    logger.failure("a stage's own code raised", error)
    failure = StageFailed(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _one_by_one(compute: Compute | None) -> BatchCompute:
    assert compute is not None

    def compute_batch(payloads: Sequence[Payload]) -> Sequence[Payload | Exception]:
        return [compute(payload) for payload in payloads]

    return compute_batch
