"""The Coordinator's decisions: an event goes in, instructions come out, and nothing else happens.

Every request goes PENDING → RUNNING → COMPLETED, FAILED or ABORTED, and ends exactly once. Its id
stays reserved while anybody holds it: the request itself, its reader, or a replica that has not
confirmed an abort. What arrives for a request that is over, from a replica that is not its own, or
twice, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from omni_gateway.coordinator.admission import Admission
from omni_gateway.coordinator.binding import Binding, bind
from omni_gateway.coordinator.directory import Directory
from omni_gateway.coordinator.events import (
    AbortAcked,
    AbortRequested,
    ConsumerLeft,
    DrainStarted,
    Dropped,
    Event,
    Instruction,
    OutputArrived,
    Readable,
    ReplicaLost,
    ReplicasChanged,
    ReturnCredit,
    SendSubmit,
    StageCompleted,
    StageFailed,
    Stopped,
    SubmitRefused,
    SubmitSent,
    Submitted,
    TimePassed,
)
from omni_gateway.coordinator.options import CoordinatorOptions
from omni_gateway.coordinator.readiness import Readiness, readiness_of, why_unroutable
from omni_gateway.coordinator.records import Phase, RequestRecord
from omni_gateway.coordinator.requests import RequestTable
from omni_gateway.coordinator.streams import Backlog, OutputBuffer
from omni_gateway.coordinator.topology import PipelineTopology
from omni_wire.errors import (
    DeadlineExceeded,
    Draining,
    ErrorInfo,
    InstanceLost,
    RequestAborted,
    RequestExists,
    Unavailable,
    from_info,
)
from omni_wire.identity import GATEWAY_SOURCE, RequestKey
from omni_wire.messages import Payload

_Handler = Callable[["CoordinatorState", Any, float], list[Instruction]]


@dataclass(slots=True)
class CoordinatorState:
    """Everything one Coordinator knows. Not thread-safe; the caller gives the time and does the
    I/O.

    Attributes:
        gateway: incarnation id of the gateway process, part of every request key.
        refusal: why no new request is taken; null while they are.
        warm_up_problems: how the latest try of a warm-up failed, by its name.
    """

    topology: PipelineTopology
    options: CoordinatorOptions
    gateway: str
    directory: Directory = field(init=False)
    requests: RequestTable = field(init=False)
    refusal: ErrorInfo | None = None
    warm_up_problems: dict[str, str] = field(default_factory=dict)
    _epochs: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.directory = Directory(self.topology, self.options.lease_seconds)
        self.requests = RequestTable(
            self.directory,
            Admission(self.options.max_in_flight),
            Backlog(self.options.max_total_backlog_bytes),
        )

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take in one event and return what has to be done, in order.

        Raises:
            ServiceError: only for `Submitted`, when the request is refused; nothing is kept of it
                then.
        """
        return _HANDLERS[type(event)](self, event, now)

    def readiness(self) -> Readiness:
        """Return whether requests can be served now."""
        return readiness_of(self.directory, self.warm_up_problems)

    def next_moment(self) -> float | None:
        """Return when `TimePassed` is due next, or null while nothing can run out."""
        moments = [self.requests.deadlines.next(), self.directory.next_expiry()]
        moments += [record.route_until for record in self.requests.waiting.values()]
        return min((one for one in moments if one is not None), default=None)

    def _submitted(self, event: Submitted, now: float) -> list[Instruction]:
        self._refuse_if_closed(event, now)
        expected = self.topology.expected_terminals(event.view)
        record = RequestRecord(
            key=RequestKey(self.gateway, event.request_id, next(self._epochs)),
            view=event.view,
            expected=expected,
            needed=self.topology.stages_needed(expected),
            submitted_at=now,
            deadline=event.deadline,
            revision=event.revision,
            buffer=OutputBuffer(),
            resubmits_left=self.options.max_resubmits,
            route_until=now + self.options.route_wait_seconds,
            warm_up=event.warm_up,
        )
        record.binding = self._bind(record)
        if record.binding is None:
            self._wait_for_replicas(record)
        self.requests.add(record)
        return [] if record.binding is None else [self._submission(record)]

    def _sent(self, event: SubmitSent, now: float) -> list[Instruction]:
        record = self.requests.running(event.key)
        if record is not None:
            self._mark_sent(record)
        return []

    def _refused(self, event: SubmitRefused, now: float) -> list[Instruction]:
        record = self.requests.running(event.key)
        if record is None:
            return []
        return self.requests.refuse(record, event.error, now)

    def _abort_requested(self, event: AbortRequested, now: float) -> list[Instruction]:
        record = self.requests.get(event.request_id)
        if record is None or record.phase.finished:
            return []
        return self.requests.end(record, event.error, now, Phase.ABORTED)

    def _consumer_left(self, event: ConsumerLeft, now: float) -> list[Instruction]:
        record = self.requests.get(event.request_id)
        if record is None:
            return []
        instructions: list[Instruction] = []
        if not record.phase.finished:
            error = RequestAborted("the client left")
            instructions = self.requests.end(record, error, now, Phase.ABORTED)
        return instructions + self.requests.leave(record)

    def _output(self, event: OutputArrived, now: float) -> list[Instruction]:
        record = self.requests.running(event.key)
        output = event.output
        if record is None or not record.expects(output.stage, output.sender):
            return [ReturnCredit((output,))]
        self._mark_sent(record)
        overflow = self.requests.store(record, output, now)
        return [Readable(record.request_id), *overflow]

    def _completed(self, event: StageCompleted, now: float) -> list[Instruction]:
        record = self.requests.running(event.key)
        if record is None or not record.expects(event.stage, event.sender):
            return []
        self._mark_sent(record)
        overflow = self.requests.store_result(
            record, event.stage, event.result, event.size_bytes, now
        )
        if record.phase.finished or len(record.results) < len(record.expected):
            return overflow
        if record.warm_up and record.binding is not None:
            self.directory.answered(record.warm_up, record.binding.needed)
            self.warm_up_problems.pop(record.warm_up, None)
        return overflow + self.requests.complete(record, record.merged(), now)

    def _stage_failed(self, event: StageFailed, now: float) -> list[Instruction]:
        record = self.requests.running(event.key)
        if record is None or not record.bound_to(event.sender):
            return []
        error = from_info(event.error)
        if isinstance(error, InstanceLost):
            return self._lose(record, error, now)
        aborted = event.error.reason == RequestAborted.reason
        return self.requests.end(record, error, now, Phase.ABORTED if aborted else Phase.FAILED)

    def _abort_acked(self, event: AbortAcked, now: float) -> list[Instruction]:
        return self.requests.acknowledged(event.key, event.sender)

    def _replica_lost(self, event: ReplicaLost, now: float) -> list[Instruction]:
        replica = self.directory.remove(event.incarnation)
        if replica is None:
            return []
        instructions: list[Instruction] = [Dropped(event.incarnation, event.reason)]
        for record in list(self.requests):
            for key in list(record.unacknowledged):
                instructions += self.requests.acknowledged(key, event.incarnation)
            if record.binding is not None and event.incarnation in record.binding.needed:
                group = replica.registration.group
                error = InstanceLost(f"group '{group}' was lost: {event.reason}", stage=group)
                instructions += self._lose(record, error, now)
        return instructions

    def _replicas_changed(self, event: ReplicasChanged, now: float) -> list[Instruction]:
        instructions: list[Instruction] = []
        for record in list(self.requests.waiting.values()):
            record.binding = self._bind(record)
            if record.binding is not None:
                del self.requests.waiting[record.request_id]
                instructions.append(self._submission(record))
        return instructions

    def _time_passed(self, event: TimePassed, now: float) -> list[Instruction]:
        instructions: list[Instruction] = []
        for incarnation in self.directory.silent_since(now):
            reason = f"nothing heard for {self.directory.lease_seconds:g} s"
            instructions += self._replica_lost(ReplicaLost(incarnation, reason), now)
        for request_id, epoch in self.requests.deadlines.due(now):
            record = self.requests.get(request_id)
            if record is not None and not record.phase.finished and record.key.epoch == epoch:
                error = DeadlineExceeded(f"not finished after {now - record.submitted_at:.3g} s")
                instructions += self.requests.end(record, error, now)
        for record in list(self.requests.waiting.values()):
            if record.route_until <= now:
                instructions += self.requests.end(record, self._unroutable(record), now)
        return instructions

    def _drain_started(self, event: DrainStarted, now: float) -> list[Instruction]:
        self.refusal = self.refusal or Draining("the gateway is about to stop").info
        return []

    def _stopped(self, event: Stopped, now: float) -> list[Instruction]:
        self.refusal = event.error
        running = [record for record in self.requests if not record.phase.finished]
        # An exception belongs to one raiser: shared, its traceback would grow with every request.
        return [
            step
            for record in running
            for step in self.requests.end(record, from_info(event.error), now)
        ]

    def _refuse_if_closed(self, event: Submitted, now: float) -> None:
        if self.refusal is not None:
            raise from_info(self.refusal)
        if self.requests.get(event.request_id) is not None:
            raise RequestExists(f"request '{event.request_id}' exists or has not been cleared yet")
        if event.deadline <= now:
            raise DeadlineExceeded("the deadline had passed before the request was admitted")
        self.requests.admission.check()

    def _wait_for_replicas(self, record: RequestRecord) -> None:
        waiting = self.requests.waiting
        if self.options.route_wait_seconds <= 0 or len(waiting) >= self.options.max_waiting:
            raise self._unroutable(record)
        waiting[record.request_id] = record

    def _unroutable(self, record: RequestRecord) -> Unavailable:
        return Unavailable(why_unroutable(self.directory, record.needed, record.revision))

    def _bind(self, record: RequestRecord) -> Binding | None:
        return bind(self.directory, record.needed, record.revision, record.warm_up)

    def _submission(self, record: RequestRecord) -> SendSubmit:
        binding = record.binding
        assert binding is not None, "only a bound request is submitted"
        payload = Payload(
            record.key, GATEWAY_SOURCE, None, record.view, binding.endpoints, record.deadline
        )
        return SendSubmit(binding.entry, payload)

    def _mark_sent(self, record: RequestRecord) -> None:
        if record.phase is not Phase.PENDING:
            return
        record.phase = Phase.RUNNING
        if not record.resubmits_left:
            record.view = None

    def _lose(self, record: RequestRecord, error: InstanceLost, now: float) -> list[Instruction]:
        if record.resubmits_left and not record.buffer.delivered:
            return self._resubmit(record, now)
        delivered = record.buffer.delivered or len(record.buffer) > 0
        error.details["delivered"] = str(delivered).lower()
        return self.requests.end(record, error, now)

    def _resubmit(self, record: RequestRecord, now: float) -> list[Instruction]:
        instructions = self.requests.restart(record, next(self._epochs), InstanceLost.reason)
        record.route_until = now + self.options.route_wait_seconds
        record.binding = self._bind(record)
        if record.binding is None:
            self.requests.waiting[record.request_id] = record
            return instructions
        return [*instructions, self._submission(record)]


_HANDLERS: Mapping[type, _Handler] = {
    Submitted: CoordinatorState._submitted,
    SubmitSent: CoordinatorState._sent,
    SubmitRefused: CoordinatorState._refused,
    OutputArrived: CoordinatorState._output,
    StageCompleted: CoordinatorState._completed,
    StageFailed: CoordinatorState._stage_failed,
    AbortRequested: CoordinatorState._abort_requested,
    AbortAcked: CoordinatorState._abort_acked,
    ConsumerLeft: CoordinatorState._consumer_left,
    ReplicaLost: CoordinatorState._replica_lost,
    ReplicasChanged: CoordinatorState._replicas_changed,
    TimePassed: CoordinatorState._time_passed,
    DrainStarted: CoordinatorState._drain_started,
    Stopped: CoordinatorState._stopped,
}
