"""The table of requests: who holds which id, and the few steps every transition is made of.

Each step returns what has to be done about it; the order of that list matters, because a replica
must be told to stop before the client learns the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from omni_gateway.coordinator.admission import Admission
from omni_gateway.coordinator.binding import unbind
from omni_gateway.coordinator.deadlines import Deadlines
from omni_gateway.coordinator.directory import Directory
from omni_gateway.coordinator.events import (
    AbortCompleted,
    Finished,
    Instruction,
    Readable,
    Released,
    ReturnCredit,
    SendAbort,
)
from omni_gateway.coordinator.records import Phase, RequestRecord
from omni_gateway.coordinator.streams import Backlog, Output
from omni_gateway.errors import SlowReader
from omni_wire.errors import ServiceError
from omni_wire.identity import RequestKey
from omni_wire.messages import Tree


@dataclass(slots=True)
class RequestTable:
    """Every request whose id somebody holds.

    Attributes:
        admission: counts unfinished requests.
        backlog: counts unread output.
        deadlines: when unfinished requests have to be looked at.
        waiting: requests that wait for replicas, in order of arrival.
    """

    directory: Directory
    admission: Admission
    backlog: Backlog
    deadlines: Deadlines = field(default_factory=Deadlines)
    waiting: dict[str, RequestRecord] = field(default_factory=dict)
    _by_id: dict[str, RequestRecord] = field(default_factory=dict)
    _by_key: dict[RequestKey, RequestRecord] = field(default_factory=dict)

    def __iter__(self) -> Iterator[RequestRecord]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, request_id: str) -> RequestRecord | None:
        """Return the record that holds an id."""
        return self._by_id.get(request_id)

    def running(self, key: RequestKey) -> RequestRecord | None:
        """Return the unfinished request whose current epoch this is."""
        return self._by_key.get(key)

    def add(self, record: RequestRecord) -> None:
        """Take in an admitted request."""
        self.admission.admit()
        self._by_id[record.request_id] = record
        self._by_key[record.key] = record
        self.deadlines.add(record.deadline, record.request_id, record.key.epoch)

    def restart(self, record: RequestRecord, epoch: int, reason: str) -> list[Instruction]:
        """Put a request back to its beginning under a new epoch; the old one is aborted."""
        instructions = [*self._abort(record, reason), *self._clear(record)]
        self._release_binding(record)
        del self._by_key[record.key]
        record.key = record.key._replace(epoch=epoch)
        self._by_key[record.key] = record
        record.phase = Phase.PENDING
        record.resubmits_left -= 1
        self.deadlines.add(record.deadline, record.request_id, epoch)
        return instructions

    def complete(self, record: RequestRecord, result: Tree, now: float) -> list[Instruction]:
        """End a request with its result; unread output stays for its reader."""
        record.result = result
        return self._finish(record, Phase.COMPLETED, None, now)

    def end(
        self, record: RequestRecord, error: ServiceError, now: float, phase: Phase = Phase.FAILED
    ) -> list[Instruction]:
        """End a request without result, its replicas first.

        The reader of a failed request still gets what had arrived before it learns of the failure;
        whoever aborted a request, or left it unread for too long, wants nothing more of it.
        """
        aborts = self._abort(record, error.info.reason)
        unwanted = phase is Phase.ABORTED or isinstance(error, SlowReader)
        dropped = self._clear(record) if unwanted else []
        self._forget_results(record)
        return [*aborts, *dropped, *self._finish(record, phase, error, now)]

    def refuse(self, record: RequestRecord, error: ServiceError, now: float) -> list[Instruction]:
        """End a request that no replica has seen."""
        self._release_binding(record)
        return self.end(record, error, now)

    def store(self, record: RequestRecord, output: Output, now: float) -> list[Instruction]:
        """Keep a chunk for the reader."""
        record.buffer.put(output)
        self.backlog.update(record.key, record.buffer.size_bytes)
        return self._keep_limit(now) if self.backlog.exceeded else []

    def store_result(
        self, record: RequestRecord, stage: str, result: Tree, size_bytes: int, now: float
    ) -> list[Instruction]:
        """Keep the result of one terminal."""
        record.results[stage] = result
        record.buffer.result_bytes += size_bytes
        self.backlog.update(record.key, record.buffer.size_bytes)
        return self._keep_limit(now) if self.backlog.exceeded else []

    def take(self, record: RequestRecord) -> Output:
        """Hand the oldest chunk to the reader, who releases it.

        Raises:
            IndexError: there is none.
        """
        output = record.buffer.take()
        self.backlog.update(record.key, record.buffer.size_bytes, read=True)
        return output

    def leave(self, record: RequestRecord) -> list[Instruction]:
        """Note that the reader of a finished request is gone."""
        record.has_consumer = False
        record.result = None
        return [*self._clear(record), *self._release(record)]

    def acknowledged(self, key: RequestKey, incarnation: int) -> list[Instruction]:
        """Note that a replica let go of an aborted epoch."""
        record = self._by_id.get(key.request_id)
        if record is None or key not in record.unacknowledged:
            return []
        missing = record.unacknowledged[key]
        missing.discard(incarnation)
        if missing:
            return []
        del record.unacknowledged[key]
        return [AbortCompleted(key), *self._release(record)]

    def _abort(self, record: RequestRecord, reason: str) -> list[Instruction]:
        """Tell every live replica of the epoch to let go; the id stays held until all did."""
        if record.binding is None:
            return []
        told = [one for one in sorted(record.binding.bound) if self.directory.get(one) is not None]
        if told:
            record.unacknowledged[record.key] = set(told)
        return [SendAbort(incarnation, record.key, reason) for incarnation in told]

    def _finish(
        self, record: RequestRecord, phase: Phase, error: ServiceError | None, now: float
    ) -> list[Instruction]:
        record.phase, record.error, record.view = phase, error, None
        self.waiting.pop(record.request_id, None)
        del self._by_key[record.key]
        self._release_binding(record)
        self.admission.finish(now)
        self.deadlines.clean(len(self._by_key), self._is_live)
        reason = "" if error is None else error.info.reason
        return [
            Finished(record.key, phase, reason, now - record.submitted_at, record.warm_up),
            Readable(record.request_id),
            *self._release(record),
        ]

    def _keep_limit(self, now: float) -> list[Instruction]:
        instructions: list[Instruction] = []
        while self.backlog.exceeded:
            record = self._by_id[self.backlog.longest_idle().request_id]
            error = SlowReader("the client left too much output unread")
            if not record.phase.finished:
                instructions += self.end(record, error, now)
                continue
            # The request ended, but its reader did not come for the outcome.
            record.error, record.result = record.error or error, None
            instructions += [*self._clear(record), Readable(record.request_id)]
        return instructions

    def _clear(self, record: RequestRecord) -> list[Instruction]:
        unread = record.buffer.clear()
        self._forget_results(record)
        return [ReturnCredit(tuple(unread))] if unread else []

    def _forget_results(self, record: RequestRecord) -> None:
        record.results.clear()
        record.buffer.result_bytes = 0
        self.backlog.update(record.key, record.buffer.size_bytes)

    def _release(self, record: RequestRecord) -> list[Instruction]:
        """Free the id once request, reader and aborts have all let go."""
        if record.held:
            return []
        del self._by_id[record.request_id]
        return [Released(record.request_id)]

    def _release_binding(self, record: RequestRecord) -> None:
        if record.binding is not None:
            unbind(self.directory, record.binding)
            record.binding = None

    def _is_live(self, request_id: str, epoch: int) -> bool:
        record = self._by_id.get(request_id)
        return record is not None and not record.phase.finished and record.key.epoch == epoch
