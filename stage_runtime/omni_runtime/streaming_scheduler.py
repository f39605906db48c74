"""A scheduler for stages that consume and produce rows step by step, many requests in one step.

Every row is gated alone: a request whose reader has no room, or whose next input has not come, is
left out of the step while its neighbours go on. What the rows compute is a `StreamProgram`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, Protocol, TypeVar

from omni_runtime.scheduler import (
    Aborted,
    AbortRequest,
    Admitted,
    Chunks,
    Heartbeat,
    Inbox,
    InboxMessage,
    NewRequest,
    Opened,
    Outbox,
    RequestError,
    Result,
    Resume,
    Stall,
    StepOutput,
    Taken,
)
from omni_runtime.simple_scheduler import failure_of
from omni_runtime.tombstones import Tombstones
from omni_wire.identity import RequestKey
from omni_wire.messages import Payload, RequestView, StepFrame, StreamDone
from omni_wire.rows import select
from omni_wire.tensor import Tensor

S = TypeVar("S")

# A request that lags further behind keeps copies of its own rows: its credit counts those alone,
# and the frames they came in hold everybody's.
_FRAMES_KEPT = 4


@dataclass(frozen=True, slots=True)
class Chunk:
    """One row of input: row `index` of the columns of `frame`."""

    frame: StepFrame
    index: int


def _alone(chunk: Chunk) -> Chunk:
    """The chunk in a frame of its own, if it came in one with others from another process."""
    frame = chunk.frame
    if len(frame.rows) < 2 or not all(isinstance(each, Tensor) for each in frame.columns.values()):
        return chunk
    return Chunk(select(frame, [chunk.index]), 0)


class StreamRow(Generic[S]):
    """One live request of a streaming stage.

    Attributes:
        payload: the merged payload, None until it has come (a stage may accept rows before it).
        request: the request, without inputs until the payload has come; None while nobody said.
        state: what the program keeps for the request.
        ended: sources whose stream has ended.
        stalled: whether a reader of this request's output has no room.
    """

    def __init__(self, key: RequestKey, state: S) -> None:
        self.key = key
        self.payload: Payload | None = None
        self.request: RequestView | None = None
        self.state = state
        self.ended: set[str] = set()
        self.stalled = False
        self._waiting: dict[str, deque[Chunk]] = {}
        self._taken: list[str] = []

    def waiting(self, source: str) -> int:
        """Return how many chunks of `source` have come and are not used yet."""
        return len(self._waiting.get(source, ()))

    def exhausted(self, source: str) -> bool:
        """Return whether every chunk that `source` will ever send has been used."""
        return source in self.ended and not self._waiting.get(source)

    def take(self, source: str) -> Chunk:
        """Use up the oldest waiting chunk of `source`. Raises IndexError when there is none."""
        chunk = self._waiting[source].popleft()
        self._taken.append(source)
        return chunk

    def introduce(self, request: RequestView) -> None:
        """Set the request, known before the payload."""
        self.request = request

    def offer(self, source: str, chunk: Chunk) -> None:
        """Append a chunk that has come."""
        waiting = self._waiting.setdefault(source, deque())
        waiting.append(_alone(chunk) if len(waiting) >= _FRAMES_KEPT else chunk)

    def taken(self) -> list[str]:
        """Return the source of every chunk used since the last call."""
        taken, self._taken = self._taken, []
        return taken


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step made.

    Attributes:
        outputs: rows, at most one frame per target; the scheduler fills in the step number. They
            leave before `finished`, so what a program held back for a request goes into its last
            step.
        finished: requests that ended in this step.
        failed: requests that failed in this step, the others having gone on.
    """

    outputs: tuple[StepOutput, ...] = ()
    finished: tuple[Result, ...] = ()
    failed: tuple[RequestError, ...] = ()


class StreamProgram(Protocol[S]):
    """What a streaming stage computes."""

    def open(self, key: RequestKey) -> S:
        """Return the state of a request seen for the first time."""
        ...

    def ready(self, row: StreamRow[S]) -> bool:
        """Return whether the row has what its next step needs; must be cheap, it is asked every
        pass.
        """
        ...

    def step(self, rows: Sequence[StreamRow[S]]) -> StepResult:
        """Advance every given row by one step. What it raises fails these rows and no others."""
        ...

    def close(self, row: StreamRow[S]) -> None:
        """Free what the request holds. Called exactly once, whether it finished, failed or was
        aborted.
        """
        ...


class StreamingScheduler(Generic[S]):
    """Runs a `StreamProgram` with a gate per row.

    Args:
        program: what the rows compute.
        max_rows: most rows in one step; those that waited longest go first.
    """

    def __init__(self, program: StreamProgram[S], *, max_rows: int = 64) -> None:
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows}")
        self.inbox = Inbox()
        self.heartbeat = Heartbeat()
        self._program = program
        self._max_rows = max_rows
        self._rows: dict[RequestKey, StreamRow[S]] = {}
        self._over: Tombstones[RequestKey, None] = Tombstones()
        self._stopped = False

    @property
    def in_flight(self) -> int:
        """Requests that are alive here."""
        return len(self._rows)

    @property
    def can_step(self) -> bool:
        """Whether `advance` would run a step now."""
        return bool(self._gate())

    def stop(self) -> None:
        """Make `run` return after the step in progress."""
        self._stopped = True
        self.inbox.wake()

    def run(self, outbox: Outbox) -> None:
        """Body of the scheduler's thread."""
        stepped = False
        while not self._stopped:
            if not stepped:
                self.inbox.wait()
            stepped = self.advance(outbox)

    def advance(self, outbox: Outbox) -> bool:
        """Drain the inbox once and run at most one step; return whether a step ran.

        The order never varies, so that ranks that drain the same messages take the same step.
        """
        for message in self.inbox.drain():
            self._take(message, outbox)
        rows = self._gate()
        if rows:
            self._step(rows, outbox)
        return bool(rows)

    def _take(self, message: InboxMessage, outbox: Outbox) -> None:
        match message:
            case NewRequest(payload):
                self._with_row(payload.key, outbox, lambda row: self._admit(row, payload, outbox))
            case Opened(key, request):
                self._with_row(key, outbox, partial(StreamRow.introduce, request=request))
            case Chunks(source, frame, indices):
                for index in indices:
                    chunk = Chunk(frame, index)
                    key = frame.rows[index].key
                    self._with_row(
                        key, outbox, partial(StreamRow.offer, source=source, chunk=chunk)
                    )
            case StreamDone(key, source):
                self._with_row(key, outbox, lambda row: row.ended.add(source))
            case AbortRequest(key):
                self._abort(key, outbox)
            case Stall(key) | Resume(key):
                if key in self._rows:
                    self._rows[key].stalled = isinstance(message, Stall)
            case _:
                # Draining changes nothing: rows never wait for company.
                pass

    def _with_row(
        self, key: RequestKey, outbox: Outbox, act: Callable[[StreamRow[S]], None]
    ) -> None:
        """Act on the row of `key`, opening it when it is new; what is late for a request is
        dropped.
        """
        if key in self._over:
            return
        row = self._rows.get(key)
        if row is None:
            try:
                row = self._rows[key] = StreamRow(key, self._program.open(key))
            except Exception as error:  # the author's code
                self._over.add(key, None)
                outbox.put(RequestError(key, failure_of(error)))
                return
        act(row)

    def _admit(self, row: StreamRow[S], payload: Payload, outbox: Outbox) -> None:
        row.payload = payload
        row.request = payload.request or row.request
        outbox.put(Admitted(payload.key))

    def _abort(self, key: RequestKey, outbox: Outbox) -> None:
        if key in self._over:
            return
        self._end(key)
        outbox.put(Aborted(key))

    def _gate(self) -> list[StreamRow[S]]:
        ready = []
        for row in self._rows.values():
            if not row.stalled and self._program.ready(row):
                ready.append(row)
                if len(ready) == self._max_rows:
                    break
        return ready

    def _step(self, rows: list[StreamRow[S]], outbox: Outbox) -> None:
        started = self.heartbeat.begin()
        step = self.heartbeat.steps
        try:
            result = self._program.step(rows)
        except Exception as error:  # the author's code; its rows fail and the stage goes on
            failure = failure_of(error)
            result = StepResult(failed=tuple(RequestError(row.key, failure) for row in rows))
        finally:
            self.heartbeat.end(started)
        self._report_taken(rows, outbox)
        for output in result.outputs:
            outbox.put(replace(output, step=step))
        self._to_the_back(rows)
        outcomes: tuple[Result | RequestError, ...] = (*result.finished, *result.failed)
        for outcome in outcomes:
            self._conclude(outcome, outbox)

    def _conclude(self, outcome: Result | RequestError, outbox: Outbox) -> None:
        if outcome.key not in self._rows:
            return
        self._end(outcome.key)
        outbox.put(outcome)

    def _end(self, key: RequestKey) -> None:
        self._over.add(key, None)
        row = self._rows.pop(key, None)
        if row is not None:
            self._program.close(row)

    def _to_the_back(self, rows: list[StreamRow[S]]) -> None:
        if len(self._rows) <= self._max_rows:
            return
        for row in rows:
            self._rows[row.key] = self._rows.pop(row.key)

    def _report_taken(self, rows: list[StreamRow[S]], outbox: Outbox) -> None:
        by_source: dict[str, list[RequestKey]] = {}
        for row in rows:
            for source in row.taken():
                by_source.setdefault(source, []).append(row.key)
        for source, keys in by_source.items():
            outbox.put(Taken(source, tuple(keys)))
