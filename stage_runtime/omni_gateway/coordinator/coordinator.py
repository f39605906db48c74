"""The Coordinator as the rest of a gateway uses it: the state machine with a clock and links.

Nothing here waits for a stage. Events are applied in the order in which they come; what has to be
said to replicas is posted to their links, which never block.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from uuid import uuid4

from omni_gateway.coordinator.events import (
    AbortCompleted,
    AbortRequested,
    ConsumerLeft,
    DrainStarted,
    Dropped,
    Event,
    Finished,
    Instruction,
    OutputArrived,
    Readable,
    Released,
    ReturnCredit,
    SendAbort,
    SendSubmit,
    Stopped,
    SubmitRefused,
    SubmitSent,
    Submitted,
    TimePassed,
)
from omni_gateway.coordinator.handle import RequestHandle
from omni_gateway.coordinator.journal import Journal
from omni_gateway.coordinator.links import ReplicaLink
from omni_gateway.coordinator.options import CoordinatorOptions
from omni_gateway.coordinator.readiness import Readiness
from omni_gateway.coordinator.records import RequestRecord
from omni_gateway.coordinator.request_ids import checked_id
from omni_gateway.coordinator.state import CoordinatorState
from omni_gateway.coordinator.streams import Output
from omni_gateway.coordinator.timelines import TimelineStore
from omni_gateway.coordinator.topology import PipelineTopology
from omni_gateway.metrics import GatewayMetrics
from omni_runtime.logging import EventLogger
from omni_wire.errors import Draining, InvalidRequest, RequestAborted, ServiceError
from omni_wire.identity import RequestKey, new_gateway_id
from omni_wire.messages import Abort, Drain, RequestView, Submit

logger = EventLogger(__name__)

STOOD_STILL = 0.1
"""Part of a lease by which a timer may be late before this process counts as having stood still."""


class Coordinator:
    """Binds requests to replicas, gathers their output, and ends each of them exactly once.

    Several can live in one process. All methods belong to the event loop's thread.

    Attributes:
        state: what it knows; for reading only.
        metrics: counters that it keeps.
        timelines: what became of the latest requests.
    """

    def __init__(
        self,
        topology: PipelineTopology,
        options: CoordinatorOptions | None = None,
        *,
        gateway: str | None = None,
        metrics: GatewayMetrics | None = None,
    ) -> None:
        self.state = CoordinatorState(
            topology, options or CoordinatorOptions(), gateway or new_gateway_id()
        )
        self.metrics = metrics or GatewayMetrics()
        self.metrics.watch(self.state)
        self.timelines = TimelineStore()
        self._journal = Journal(self.metrics, self.timelines)
        self._links: dict[int, ReplicaLink] = {}
        self._handles: dict[str, RequestHandle] = {}
        self._aborts: dict[str, asyncio.Event] = {}
        self._watchers: list[Callable[[Readiness], None]] = []
        self._readiness = self.state.readiness()
        self._idle = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def gateway(self) -> str:
        """Incarnation id of this gateway."""
        return self.state.gateway

    @property
    def readiness(self) -> Readiness:
        """Whether every stage has a replica that takes requests and warm-ups were answered."""
        return self._readiness

    def watch_readiness(self, watcher: Callable[[Readiness], None]) -> None:
        """Call the watcher now and after every change."""
        self._watchers.append(watcher)
        watcher(self._readiness)

    def submit(
        self,
        view: RequestView,
        *,
        request_id: str | None = None,
        timeout_seconds: float | None = None,
        revision: str | None = None,
        warm_up: str = "",
    ) -> RequestHandle:
        """Admit a request and send it to the entry stage, or have it wait for replicas.

        Args:
            request_id: the client's name for it; drawn at random when null.
            timeout_seconds: until it fails; the options' default when null, and never longer than
                their maximum.
            revision: the only revision that may serve it.
            warm_up: name of the warm-up that it is, which is counted apart from what clients ask.

        Raises:
            InvalidRequest: the id or the timeout makes no sense.
            RequestExists: the id is held by an earlier request.
            QueueFull, Unavailable, Draining: try again later, or at another gateway.
            ServiceError: the pipeline's terminals hook failed, or the request cannot be sent.
        """
        name = uuid4().hex if request_id is None else checked_id(request_id)
        now = time.monotonic()
        deadline = now + self._timeout(timeout_seconds)
        steps = self._admit(Submitted(name, view, deadline, revision, warm_up), now)
        record = self.state.requests.get(name)
        assert record is not None, "an admitted request is in the table"
        handle = self._handles[name] = RequestHandle(self, record)
        self._run(steps, now)
        if record.error is not None:
            error = record.error
            handle.leave()
            raise error
        return handle

    def warm_up_failed(self, name: str, problem: str) -> None:
        """Note why a warm-up was not answered."""
        self.state.warm_up_problems[name] = problem
        self.refresh()

    async def abort(self, request_id: str, reason: str = "aborted") -> None:
        """End a request, and wait until every replica let go of it or is gone.

        An unknown id changes nothing; concurrent aborts of one request share their wait.
        """
        self.apply(AbortRequested(request_id, RequestAborted(reason)))
        record = self.state.requests.get(request_id)
        if record is None or not record.unacknowledged:
            return
        await self._aborts.setdefault(request_id, asyncio.Event()).wait()

    async def drain(self, seconds: float) -> None:
        """Take no new request, let those in flight finish, and abort what is left after a time."""
        self.apply(DrainStarted())
        if not len(self.state.requests):
            return
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            left = self.state.requests.admission.in_flight
            logger.warning("drain timed out", aborted=left, seconds=seconds)
            self.stop(Draining(f"not finished within {seconds:g} s of draining"))

    async def idle(self) -> None:
        """Wait until nobody holds a request here."""
        if len(self.state.requests):
            await self._idle.wait()

    def stop(self, error: ServiceError) -> None:
        """Fail everything in flight and refuse everything new."""
        self.apply(Stopped(error.info))

    def apply(self, event: Event) -> None:
        """Take in an event and do what follows from it."""
        now = time.monotonic()
        self._run(self.state.handle(event, now), now)

    def receive(self, outputs: Iterable[tuple[RequestKey, Output]]) -> None:
        """Take in the chunks of a frame: like `apply`, but none of them can move a deadline."""
        now = time.monotonic()
        for key, output in outputs:
            for step in self.state.handle(OutputArrived(key, output), now):
                self._execute(step)

    def take(self, record: RequestRecord) -> Output:
        """Give the oldest unread chunk to the reader, and its credit back to the sender."""
        output = self.state.requests.take(record)
        output.release()
        return output

    def leave(self, handle: RequestHandle) -> None:
        """Note that the reader of a request is gone."""
        self._handles.pop(handle.request_id, None)
        self.apply(ConsumerLeft(handle.request_id))

    def attach(self, incarnation: int, link: ReplicaLink) -> None:
        """Reach a registered replica by this link from now on."""
        self._links[incarnation] = link

    def refresh(self) -> None:
        """Look again at which stages are ready; whoever changed the directory calls it."""
        readiness = self.state.readiness()
        if readiness == self._readiness:
            return
        self._readiness = readiness
        for watcher in self._watchers:
            watcher(readiness)

    def _admit(self, event: Submitted, now: float) -> list[Instruction]:
        try:
            steps = self.state.handle(event, now)
        except ServiceError:
            self._journal.refused(event)
            raise
        self._idle.clear()
        self._journal.admitted(event)
        return steps

    def _run(self, steps: list[Instruction], now: float) -> None:
        pending = deque(steps)
        while pending:
            step = pending.popleft()
            if isinstance(step, SendSubmit):
                pending.extend(self.state.handle(self._submit(step), now))
            else:
                self._execute(step)
        self._let_go()
        self._arm(now)

    def _let_go(self) -> None:
        """Tell each draining replica once that no request is bound to it any more.

        It cannot know by itself: a request may still be on its way from an earlier stage.
        """
        for replica in self.state.directory:
            if replica.draining and not replica.outstanding and not replica.let_go:
                replica.let_go = True
                self._links[replica.incarnation].post(Drain(seconds=0.0))

    def _execute(self, step: Instruction) -> None:
        match step:
            case Readable(request_id):
                self._wake_reader(request_id)
            case SendAbort(incarnation, key, reason):
                self._links[incarnation].post(Abort(key, reason))
            case ReturnCredit(outputs):
                _release_all(outputs)
            case Finished():
                self._finished(step)
            case Dropped(incarnation, reason):
                self._dropped(incarnation, reason)
            case AbortCompleted(key):
                self._abort_completed(key.request_id)
            case Released() if not len(self.state.requests):
                self._idle.set()

    def _wake_reader(self, request_id: str) -> None:
        handle = self._handles.get(request_id)
        if handle is not None:
            handle.wake()

    def _submit(self, step: SendSubmit) -> SubmitSent | SubmitRefused:
        payload = step.payload
        instance = payload.bindings[self.state.topology.entry].instance
        try:
            self._links[step.incarnation].post(Submit(instance, payload))
        except ServiceError as error:
            return SubmitRefused(payload.key, error)
        return SubmitSent(payload.key)

    def _finished(self, step: Finished) -> None:
        self._journal.finished(step, self.state.requests.get(step.key.request_id))
        if step.warm_up:
            self.refresh()

    def _dropped(self, incarnation: int, reason: str) -> None:
        self._journal.lost(incarnation, reason)
        link = self._links.pop(incarnation, None)
        if link is not None:
            link.close()
        self.refresh()

    def _abort_completed(self, request_id: str) -> None:
        record = self.state.requests.get(request_id)
        if record is None or not record.unacknowledged:
            event = self._aborts.pop(request_id, None)
            if event is not None:
                event.set()

    def _arm(self, now: float) -> None:
        moment = self.state.next_moment()
        if moment is None:
            return
        if self._timer is not None:
            if self._timer.when() <= moment:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(moment, self._wake)

    def _wake(self) -> None:
        assert self._timer is not None, "only the timer wakes"
        now = time.monotonic()
        if now - self._timer.when() > STOOD_STILL * self.state.options.lease_seconds:
            # What replicas said while this process stood still has yet to be read.
            self.state.directory.hear_everybody(now)
        self._timer = None
        self.apply(TimePassed())

    def _timeout(self, seconds: float | None) -> float:
        options = self.state.options
        if seconds is None:
            return options.default_deadline_seconds
        if not seconds > 0:
            raise InvalidRequest("the timeout must be positive", details={"field": "timeout"})
        return min(seconds, options.max_deadline_seconds)


def _release_all(outputs: Iterable[Output]) -> None:
    for output in outputs:
        output.release()
