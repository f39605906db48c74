"""The life of requests at one stage, as a state machine: an event in, instructions out, no I/O.

What it guarantees, whatever the order of events:

* The scheduler hears of a request once its payloads are merged; of chunks earlier only where the
  stage declares that. A stream that ends before the payload is remembered.
* Rows, then the stream's end, then the payload: a peer sees them in this order.
* A request ends here exactly once. What comes later is given back to its sender and dropped.
* Whatever fails, in a hook or in the scheduler, fails one request; the gateway hears of it and
  every peer that was sent something is told to drop it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from omni_runtime.scheduler import Drain, Resume, Stall
from omni_runtime.stage_events import (
    AbortAsked,
    Delivered,
    DrainExpired,
    DrainStarted,
    Event,
    GatewayLost,
    Instruction,
    Made,
    Peer,
    PeerLost,
    StallChanged,
    Submitted,
    TimePassed,
    ToScheduler,
    Unsendable,
)
from omni_runtime.stage_input import StageInput
from omni_runtime.stage_output import StageOutput
from omni_runtime.stage_request import StageRequest
from omni_runtime.stage_table import RequestTable
from omni_runtime.stage_wiring import StageWiring
from omni_wire.errors import Draining, InstanceLost, ServiceError
from omni_wire.identity import RequestKey


class StageState:
    """Requests of one stage instance, driven by events.

    Args:
        unix_offset: seconds to add to monotonic ones to get Unix time.
    """

    def __init__(self, wiring: StageWiring, unix_offset: float = 0.0) -> None:
        self._table = RequestTable(wiring, unix_offset)
        self._input = StageInput(wiring, self._table)
        self._output = StageOutput(wiring, self._table)

    @property
    def in_flight(self) -> int:
        """Requests held, ended ones included until the scheduler is free of them."""
        return len(self._table.live) + len(self._table.closing)

    @property
    def queued(self) -> int:
        """Requests whose inputs are not complete yet."""
        return sum(not request.admitted for request in self._table.live.values())

    def next_due(self) -> float | None:
        """Return when `TimePassed` is wanted next (monotonic seconds), or None."""
        return self._table.due_times.next()

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Apply an event of time `now` (monotonic seconds); return what to do, in order."""
        self._table.now = now
        match event:
            case Made(message):
                self._output.made(message)
            case Delivered(message, release):
                self._input.delivered(message, release)
            case Submitted(payload, release):
                self._input.submitted(payload, release)
            case Unsendable(key, error):
                self._table.unsendable(key, error)
            case StallChanged(peer, key, stalled):
                self._stall(peer, key, stalled)
            case AbortAsked(key, reason):
                self._table.abort(key, reason, acknowledge=True)
            case TimePassed():
                for key, error in self._table.due_times.expired(now):
                    self._table.fail(key, error)
            case PeerLost() | GatewayLost() | DrainStarted() | DrainExpired():
                self._world_changed(event)
            case _:
                assert_never(event)
        return self._table.asked()

    def _stall(self, peer: Peer, key: RequestKey, stalled: bool) -> None:
        request = self._table.live.get(key)
        if request is None:
            return
        was_stalled = bool(request.stalls)
        if stalled:
            request.stalls.add(peer)
        else:
            request.stalls.discard(peer)
        if was_stalled != bool(request.stalls):
            self._table.ask(ToScheduler(Stall(key) if request.stalls else Resume(key)))

    def _world_changed(self, event: PeerLost | GatewayLost | DrainStarted | DrainExpired) -> None:
        match event:
            case PeerLost(endpoint, error):
                lost = InstanceLost(f"{endpoint.instance} is gone: {error}")
                self._fail_all(lost, lambda request: endpoint in request.bindings.values())
            case GatewayLost(gateway):
                for request in list(self._table.live.values()):
                    if request.key.gateway == gateway:
                        self._table.close(request, "the gateway is gone")
            case DrainStarted():
                self._input.draining = True
                self._table.ask(ToScheduler(Drain()))
            case DrainExpired():
                self._fail_all(Draining("this instance stops now"), lambda _: True)
            case _:
                assert_never(event)

    def _fail_all(self, error: ServiceError, chosen: Callable[[StageRequest], bool]) -> None:
        for request in list(self._table.live.values()):
            if chosen(request):
                self._table.fail(request.key, error)
