"""What a scheduler is to the stage that hosts it: a thread between an inbox and an outbox.

The shell around a scheduler does all I/O on the event loop; the scheduler computes on a thread of
its own and never awaits. Messages are plain frozen values, so that a tensor-parallel leader can
send the very same list to its followers and every rank changes state in the same pass.

Rules a scheduler keeps:

* Every request given by `NewRequest`, or opened by an earlier `Chunks` or `StreamDone`, ends with
  exactly one of `Result`, `RequestError` and `Aborted`; nothing about it follows.
* Rows buffered for a request leave before its `Result`.
* With nothing to do it blocks in `Inbox.wait`; it never spins.
* Only the failure of one request is a `RequestError`. An exception that leaves `run` ends the
  process group.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from omni_config.errors import OmniError
from omni_runtime.columns import Columns
from omni_wire.identity import RequestKey
from omni_wire.messages import Payload, RequestView, StepFrame, StreamDone, Tree


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request whose inputs are complete; `payload` is already merged."""

    payload: Payload


@dataclass(frozen=True, slots=True)
class Opened:
    """Who asks for the rows that follow: sent right before the first of them, if there are any
    before the payload and the sending stage knew the request.

    Attributes:
        request: the request without its inputs.
    """

    key: RequestKey
    request: RequestView


@dataclass(frozen=True, slots=True)
class Chunks:
    """Rows of one step of an upstream stage.

    Attributes:
        source: logical name of the stage that sends.
        frame: the step as sent; columns have leading dimension `len(frame.rows)`.
        indices: rows of `frame` that belong to live requests of this stage, ascending. The others
            are over and must be skipped; they stay in the frame so that nothing is copied.
    """

    source: str
    frame: StepFrame
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AbortRequest:
    """Drop a request. Answered by `Aborted` once its resources are free, unless it ended before."""

    key: RequestKey
    reason: str


@dataclass(frozen=True, slots=True)
class Stall:
    """A reader of this request's output has no room: leave its row out of steps until `Resume`."""

    key: RequestKey


@dataclass(frozen=True, slots=True)
class Resume:
    """The reader has room again."""

    key: RequestKey


@dataclass(frozen=True, slots=True)
class Drain:
    """No new request will come; whatever waits for company should stop waiting."""


InboxMessage = NewRequest | Opened | Chunks | StreamDone | AbortRequest | Stall | Resume | Drain


@dataclass(frozen=True, slots=True)
class Admitted:
    """The payload has been taken into the scheduler; its credit may return to the sender."""

    key: RequestKey


@dataclass(frozen=True, slots=True)
class Taken:
    """Chunks of `source` have been used up, one per entry of `keys`, in the order they came."""

    source: str
    keys: tuple[RequestKey, ...]


@dataclass(frozen=True, slots=True)
class StepOutput:
    """Rows one step produced for one target, whatever the number of requests.

    Attributes:
        step: number of the step, rising within the scheduler.
        keys: the request of each row, each at most once.
        columns: arrays with leading dimension `len(keys)`.
        target: logical name of the receiving stage; None sends to the client (terminal stages
            only).
        modality: what the client receives, such as "text" or "audio"; empty between stages.
        meta: one small tree for the whole frame.
    """

    step: int
    keys: tuple[RequestKey, ...]
    columns: Columns
    target: str | None = None
    modality: str = ""
    meta: Tree = None


@dataclass(frozen=True, slots=True)
class Result:
    """The request is finished here.

    Attributes:
        data: tree for the next stages, or for the client on a terminal stage.
        request: the request as it travels on; None leaves it as it came.
    """

    key: RequestKey
    data: Tree
    request: RequestView | None = None


@dataclass(frozen=True, slots=True)
class RequestError:
    """This request failed; its resources are free."""

    key: RequestKey
    error: OmniError


@dataclass(frozen=True, slots=True)
class Aborted:
    """The request was dropped as asked; its resources are free."""

    key: RequestKey


OutboxMessage = Admitted | Taken | StepOutput | Result | RequestError | Aborted


class Inbox:
    """Messages to a scheduler: any thread puts, one thread waits and drains.

    Unbounded on purpose: the credits of the edges bound what can be in it.
    """

    def __init__(self) -> None:
        self._messages: deque[InboxMessage] = deque()
        self._filled = threading.Event()
        self.waiting_since: float | None = None

    def put(self, message: InboxMessage) -> None:
        """Append one message and wake the scheduler."""
        self._messages.append(message)
        if not self._filled.is_set():
            self.waiting_since = time.monotonic()
            self._filled.set()

    def wake(self) -> None:
        """Let a waiting scheduler run one pass although nothing has come."""
        self._filled.set()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Block until a message or a wake-up comes; return False on timeout."""
        return self._filled.wait(timeout_seconds)

    def drain(self) -> list[InboxMessage]:
        """Return everything that has come, oldest first; never blocks."""
        self._filled.clear()
        self.waiting_since = None
        messages: list[InboxMessage] = []
        while self._messages:
            messages.append(self._messages.popleft())
        return messages

    def close(self) -> None:
        """The scheduler's thread has ended; called on it."""

    def __len__(self) -> int:
        return len(self._messages)


class Outbox(Protocol):
    """Where a scheduler puts what it made; safe from any thread, never blocks."""

    def put(self, message: OutboxMessage) -> None:
        """Append one message; order is kept per putting thread."""
        ...


STEP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the buckets in which steps are counted by length."""


class Heartbeat:
    """Sign of life of a scheduler, written by its threads and read by anyone.

    A thread blocked on an empty inbox is healthy for ever; one that stays inside a step is not. So
    liveness is the age of the oldest step in progress, not the time since the last one.

    Attributes:
        steps: steps finished so far.
        busy_seconds: time spent inside steps, summed over threads.
        last_step_seconds: length of the newest finished step.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.busy_seconds = 0.0
        self.last_step_seconds = 0.0
        self._lock = threading.Lock()
        self._started: list[float] = []
        self._counts = [0] * (len(STEP_SECONDS) + 1)

    def begin(self) -> float:
        """Mark the start of a step and return it (monotonic seconds), for `end`."""
        started = time.monotonic()
        with self._lock:
            self._started.append(started)
        return started

    def end(self, started: float) -> None:
        """Mark the end of the step that `begin` started."""
        seconds = time.monotonic() - started
        with self._lock:
            self._started.remove(started)
            self.steps += 1
            self.busy_seconds += seconds
            self.last_step_seconds = seconds
            self._counts[bisect_left(STEP_SECONDS, seconds)] += 1

    def step_counts(self) -> list[int]:
        """Return how many steps ended within each of `STEP_SECONDS`, and then the longer ones."""
        with self._lock:
            return list(self._counts)

    def stuck_seconds(self, now: float) -> float:
        """Return for how long the oldest step in progress has run; 0 between steps."""
        with self._lock:
            return now - min(self._started) if self._started else 0.0


class Scheduler(Protocol):
    """Computes one stage. See the module for the rules it keeps."""

    inbox: Inbox
    heartbeat: Heartbeat

    def run(self, outbox: Outbox) -> None:
        """Body of the scheduler's thread; returns after `stop`."""
        ...

    def stop(self) -> None:
        """Make `run` return after the step in progress; callable from any thread."""
        ...
