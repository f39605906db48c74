"""The requests of one stage: how they begin and end.

A request ends here exactly once. Its credits go back to their senders at that moment, and a
tombstone keeps what arrives later from reviving it. A request whose scheduler still holds something
of it stays in `closing` until the scheduler says that it is free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from omni_runtime.scheduler import AbortRequest
from omni_runtime.simple_scheduler import failure_of
from omni_runtime.stage_due_times import DueTimes
from omni_runtime.stage_events import (
    AbortPeer,
    Acknowledge,
    Ended,
    ForgetPeer,
    GatewayPeer,
    GiveBack,
    Instruction,
    Peer,
    ToPeer,
    ToScheduler,
)
from omni_runtime.stage_request import StageRequest
from omni_runtime.stage_wiring import StageWiring
from omni_runtime.tombstones import Tombstones
from omni_wire.errors import to_info
from omni_wire.identity import Bindings, RequestKey
from omni_wire.messages import Failed

T = TypeVar("T")


class RequestTable:
    """Live and ending requests of one stage instance.

    Attributes:
        live: requests that may still change.
        closing: ended requests whose scheduler still holds resources, each with whether a gateway
            waits to hear that they are free.
        now: time of the event being handled, monotonic seconds.
        due_times: when live requests expire.
        unix_offset: seconds to add to monotonic ones to get Unix time.
    """

    def __init__(self, wiring: StageWiring, unix_offset: float) -> None:
        self.live: dict[RequestKey, StageRequest] = {}
        self.closing: dict[RequestKey, bool] = {}
        self.now = 0.0
        self.due_times = DueTimes(self.live, wiring.input_timeout_seconds)
        self.unix_offset = unix_offset
        self._wiring = wiring
        self._over: Tombstones[RequestKey, tuple[Peer, ...]] = Tombstones()
        self._asked: list[Instruction] = []

    def ask(self, instruction: Instruction) -> None:
        """Add something to do once the event is handled."""
        self._asked.append(instruction)

    def asked(self) -> list[Instruction]:
        """Return what was asked since the last call, in order."""
        asked, self._asked = self._asked, []
        return asked

    def is_over(self, key: RequestKey) -> bool:
        """Return whether the request has ended here."""
        return key in self._over

    def open(self, key: RequestKey, bindings: Bindings, deadline: float | None) -> StageRequest:
        """Return the live request of `key`, created at its first message."""
        request = self.live.get(key)
        if request is None:
            request = StageRequest(key, bindings, deadline, self._wiring.fan_in, self.now)
            self.live[key] = request
            self.due_times.watch(request, self.now)
        request.input_at = self.now
        return request

    def guarded(self, key: RequestKey, act: Callable[[], T]) -> T | None:
        """Run code of the model's author for one request; whatever it raises fails that request
        alone.
        """
        try:
            return act()
        except Exception as error:
            self.fail(key, failure_of(error))
            return None

    def fail(self, key: RequestKey, error: Exception, *, freed: bool = False) -> None:
        """End a live request with an error. `freed`: its scheduler holds nothing of it any more."""
        request = self.live.get(key)
        if request is not None:
            self.report(key, error)
            self.close(request, str(error), freed=freed)

    def unsendable(self, key: RequestKey, error: Exception) -> None:
        """Fail a request by what could not be sent, even if it has just finished here."""
        if key in self.live:
            self.fail(key, error)
            return
        self.report(key, error)
        for peer in self._over.get(key) or ():
            self.ask(AbortPeer(peer, key, str(error)))

    def report(self, key: RequestKey, error: Exception) -> None:
        """Tell the gateway of a request that it failed here."""
        failed = Failed(key, self._wiring.instance, to_info(error, stage=self._wiring.stage))
        self.ask(ToPeer(GatewayPeer(key.gateway), failed))

    def abort(self, key: RequestKey, reason: str, *, acknowledge: bool) -> None:
        """End a request because somebody asks for it; unknown ones are remembered as ended."""
        request = self.live.get(key)
        if request is not None:
            self.close(request, reason)
        elif key in self._over:
            for peer in self._over.get(key) or ():
                self.ask(AbortPeer(peer, key, reason))
        else:
            self._over.add(key, ())
        if key in self.closing:
            self.closing[key] |= acknowledge
        elif acknowledge:
            self.ask(Acknowledge(key))

    def close(self, request: StageRequest, reason: str, *, freed: bool = False) -> None:
        """End a request early: peers and scheduler drop it."""
        self._remove(request, reason)
        for peer in request.peers:
            self.ask(AbortPeer(peer, request.key, reason))
        if request.known and not freed:
            self.closing[request.key] = False
            self.ask(ToScheduler(AbortRequest(request.key, reason)))

    def finish(self, request: StageRequest) -> None:
        """End a request whose output has all been posted."""
        self._remove(request, "finished")
        for peer in request.peers:
            self.ask(ForgetPeer(peer, request.key))

    def freed(self, key: RequestKey) -> None:
        """The scheduler holds nothing of an ended request any more."""
        if self.closing.pop(key, False):
            self.ask(Acknowledge(key))

    def _remove(self, request: StageRequest, outcome: str) -> None:
        del self.live[request.key]
        self._over.add(request.key, tuple(request.peers))
        for release in request.everything_taken():
            self.ask(GiveBack(release, request.key))
        self.ask(
            Ended(
                request.key,
                request.view,
                outcome,
                request.opened_at,
                request.first_output_at,
                self.now,
            )
        )
