"""The shell of one stage: the only place where its state machine meets the world.

It owns no queue of its own. The scheduler's inbox, the edges and the links to gateways each hold
what waits for them, so nothing here can block anything else.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Protocol, assert_never

from omni_runtime.logging import EventLogger
from omni_runtime.scheduler import OutboxMessage, Scheduler, Stall
from omni_runtime.scheduler_thread import SchedulerThread
from omni_runtime.stage_events import (
    AbortAsked,
    AbortPeer,
    Acknowledge,
    Delivered,
    DrainExpired,
    DrainStarted,
    Ended,
    Event,
    ForgetPeer,
    GatewayLost,
    GiveBack,
    Instruction,
    Made,
    Outgoing,
    Peer,
    PeerLost,
    StallChanged,
    Submitted,
    TimePassed,
    ToPeer,
    ToScheduler,
    Unsendable,
)
from omni_runtime.stage_state import StageState
from omni_runtime.stage_tracing import record_span
from omni_runtime.stage_wiring import StageWiring
from omni_wire.edge import Release
from omni_wire.errors import ServiceError
from omni_wire.identity import Endpoint, RequestKey
from omni_wire.messages import EdgeMessage, Failed, OutputFrame, Payload, StepFrame

logger = EventLogger(__name__)


class Outlet(Protocol):
    """Everything a stage sends leaves here; nothing in it waits."""

    def post(self, source: str, peer: Peer, message: Outgoing) -> None:
        """Send a message of the instance `source`.

        Raises:
            ServiceError: this message can never be sent; nothing was.
        """
        ...

    def abort(self, source: str, peer: Peer, key: RequestKey, reason: str) -> None:
        """Drop what waits for a request on the way to a peer, and tell the peer."""
        ...

    def forget(self, source: str, peer: Peer, key: RequestKey) -> None:
        """Nothing more of a request goes to a peer."""
        ...

    def acknowledge(self, source: str, key: RequestKey) -> None:
        """The instance `source` holds nothing of an aborted request any more."""
        ...


@dataclass(slots=True)
class StageCounts:
    """What happened at a stage since it started.

    Attributes:
        stalls: times a request was held back because a reader had no room.
        failures: requests that failed here, by reason.
    """

    stalls: int = 0
    failures: Counter[str] = field(default_factory=Counter)


class Stage:
    """One hosted stage instance. Everything is called on the event loop's thread."""

    def __init__(self, wiring: StageWiring, scheduler: Scheduler, outlet: Outlet) -> None:
        self.wiring = wiring
        self.scheduler = scheduler
        self.counts = StageCounts()
        self._unix_offset = time.time() - time.monotonic()
        self._state = StageState(wiring, self._unix_offset)
        self._outlet = outlet
        self._thread = SchedulerThread(wiring.instance, scheduler, self._made)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._events: deque[Event] = deque()
        self._applying = False
        self._emptied = asyncio.Event()
        self._emptied.set()

    @property
    def instance(self) -> str:
        """`stage` or `stage@rN`."""
        return self.wiring.instance

    @property
    def in_flight(self) -> int:
        """Requests this stage holds anything of."""
        return self._state.in_flight

    @property
    def queued(self) -> int:
        """Requests whose inputs are not complete yet."""
        return self._state.queued

    async def run(self) -> None:
        """Run the scheduler until `stop`.

        Raises:
            SchedulerCrashed: the scheduler's thread ended by an exception.
        """
        self._thread.start()
        try:
            await self._thread.wait()
        finally:
            self._thread.stop()
            if self._timer is not None:
                self._timer.cancel()

    def stop(self) -> None:
        """Stop the scheduler; what it still computes is dropped."""
        self._thread.stop()

    async def drain(self, seconds: float, unbound: asyncio.Event) -> None:
        """Accept no new request; return when all have ended, or fail those left after `seconds`.

        Args:
            unbound: set once no gateway will let another request come here. Until then one may
                still be on its way from an earlier stage.
        """
        self._apply(DrainStarted())
        try:
            async with asyncio.timeout(seconds):
                await unbound.wait()
                await self._emptied.wait()
        except TimeoutError:
            self._apply(DrainExpired())

    def submit(self, payload: Payload, release: Release) -> None:
        """Take a request from a gateway."""
        self._apply(Submitted(payload, release))

    def deliver(self, message: EdgeMessage, release: Release) -> None:
        """Take a message from an edge (`omni_wire.edge.EdgeReceiver`)."""
        self._apply(Delivered(message, release))

    def on_source_lost(self, source: Endpoint, error: ServiceError) -> None:
        """An instance this stage hears from or sends to is gone (`EdgeReceiver`)."""
        self._apply(PeerLost(source, error))

    def on_stall(self, peer: Peer, key: RequestKey, stalled: bool) -> None:
        """A request's output to a peer ran out of credit, or has credit again."""
        self._apply(StallChanged(peer, key, stalled))

    def on_gateway_lost(self, gateway: str) -> None:
        """A gateway has been out of reach for longer than its lease."""
        self._apply(GatewayLost(gateway))

    def abort(self, key: RequestKey, reason: str) -> None:
        """A gateway wants a request gone; the outlet hears `acknowledge` when it is."""
        self._apply(AbortAsked(key, reason))

    def _made(self, message: OutboxMessage) -> None:
        self._apply(Made(message))

    def _apply(self, event: Event) -> None:
        """Handle an event and whatever it sets off, one after the other.

        Posting to a stage of the same process can come back here before it returns; such an event
        waits until the instructions of the present one have been carried out.
        """
        self._events.append(event)
        if self._applying:
            return
        self._applying = True
        try:
            while self._events:
                for instruction in self._state.handle(self._events.popleft(), self._loop.time()):
                    self._carry_out(instruction)
        finally:
            self._applying = False
        if self._state.in_flight:
            self._emptied.clear()
        else:
            self._emptied.set()
        self._set_timer()

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case ToScheduler(message):
                if isinstance(message, Stall):
                    self.counts.stalls += 1
                self.scheduler.inbox.put(message)
            case ToPeer(peer, message):
                self._post(peer, message)
            case GiveBack(release, key):
                release(key)
            case ForgetPeer(peer, key):
                self._outlet.forget(self.instance, peer, key)
            case AbortPeer(peer, key, reason):
                self._outlet.abort(self.instance, peer, key, reason)
            case Ended():
                record_span(self.instance, instruction, self._unix_offset)
            case Acknowledge(key):
                self._outlet.acknowledge(self.instance, key)
            case _:
                assert_never(instruction)

    def _post(self, peer: Peer, message: Outgoing) -> None:
        if isinstance(message, Failed):
            self.counts.failures[message.error.reason] += 1
            logger.warning(
                "request failed",
                request=message.key,
                stage=self.instance,
                reason=message.error.reason,
                error=message.error.message,
            )
        try:
            self._outlet.post(self.instance, peer, message)
        except ServiceError as error:
            for key in _requests_of(message):
                self._apply(Unsendable(key, error))

    def _set_timer(self) -> None:
        due = self._state.next_due()
        if self._timer is not None:
            if due is not None and self._timer.when() <= due:
                # Waking too early costs one look at the table; moving the timer costs that each
                # time.
                return
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._apply(TimePassed())


def _requests_of(message: Outgoing) -> tuple[RequestKey, ...]:
    """Return the requests that fail with a message; nothing can be said about a lost failure."""
    match message:
        case StepFrame() | OutputFrame():
            return tuple(row.key for row in message.rows)
        case Failed():
            return ()
        case _:
            return (message.key,)
