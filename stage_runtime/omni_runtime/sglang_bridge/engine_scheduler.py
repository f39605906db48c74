"""A hosted SGLang scheduler as the scheduler of a stage.

This side speaks the stage's words (request keys, payloads, rows) and the other side SGLang's. In
between it keeps one table: which request is which, and what to say of it once SGLang has let go.
What the tokens mean is the business of an `EngineProgram`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from omni_runtime.scheduler import (
    Aborted,
    AbortRequest,
    Chunks,
    Drain,
    Heartbeat,
    Inbox,
    InboxMessage,
    NewRequest,
    Opened,
    Outbox,
    OutboxMessage,
    RequestError,
    Result,
    Resume,
    Stall,
    StepOutput,
)
from omni_runtime.sglang_bridge.finish import Finish, refusal_of
from omni_runtime.sglang_bridge.generation import (
    Cancel,
    Gate,
    Generation,
    RequestIds,
    Stop,
    Submit,
    seed_of,
)
from omni_runtime.sglang_bridge.pool_counters import PoolCounters, pool_counters
from omni_runtime.sglang_bridge.sampling import Grammar, TokenLogprob
from omni_runtime.simple_scheduler import failure_of
from omni_runtime.tombstones import Tombstones
from omni_wire.identity import RequestKey
from omni_wire.messages import StreamDone

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
    from sglang.srt.managers.scheduler import GenerationBatchResult

    from omni_runtime.sglang_bridge.hosted_scheduler import HostedScheduler


@dataclass(frozen=True, slots=True)
class NewTokens:
    """What one request got in one step.

    Attributes:
        request_id: SGLang's id.
        tokens: new tokens; a stop token that ended the answer is left out.
        finish: how the answer ended, None while it goes on.
        logprobs: of each of the tokens, where the request wants to know; else empty.
    """

    key: RequestKey
    request_id: str
    tokens: tuple[int, ...]
    finish: Finish | None
    logprobs: tuple[TokenLogprob, ...] = ()


class EngineProgram(Protocol):
    """What a stage makes of its engine; every method runs on the scheduler's thread."""

    def bind(self, engine: EngineScheduler) -> None:
        """Called once, before anything else."""
        ...

    def take(self, message: NewRequest | Chunks | StreamDone) -> None:
        """Take what came for requests. What it raises for a `NewRequest` fails that request."""
        ...

    def may_run(self, req: Req) -> bool:
        """Return whether the input of the request's next step has come; must be cheap."""
        ...

    def launched(self, batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        """A step has run; its tokens are `result.next_token_ids`, on the device."""
        ...

    def failed(self, batch: ScheduleBatch) -> None:
        """A step raised; it is neither launched nor settling, and its requests end."""
        ...

    def settling(self, batch: ScheduleBatch) -> None:
        """The host is about to process a step's results; nothing has been released yet."""
        ...

    def produced(self, rows: Sequence[NewTokens]) -> Iterable[StepOutput]:
        """Return what leaves for other stages; the step number is filled in."""
        ...

    def result(self, row: NewTokens) -> Result:
        """Return the result of a request that ended by itself."""
        ...

    def drop(self, key: RequestKey) -> None:
        """Free what is held for a request, whichever way it ended. Called exactly once."""
        ...


@dataclass(slots=True)
class _Row:
    """One request known to this stage.

    Attributes:
        request_id: SGLang's id, None before it was submitted.
        stalled: whether a reader of its output has no room.
        sent: tokens handed to the program.
        grammar: what the answer must look like.
        verdict: what to say once SGLang has let go; None for the program's own result.
    """

    key: RequestKey
    request_id: str | None = None
    stalled: bool = False
    sent: int = 0
    verdict: OutboxMessage | None = None
    grammar: Grammar | None = None


class EngineScheduler:
    """Implements `omni_runtime.scheduler.Scheduler` and `hosted_scheduler.Host`.

    Every tensor-parallel rank runs one, with an inbox that gives the same messages in the same
    pass; so whatever is decided here follows from messages alone.

    Args:
        program: what the stage makes of its engine.
    """

    def __init__(self, program: EngineProgram) -> None:
        self.inbox = Inbox()
        self.heartbeat = Heartbeat()
        self.hosted: HostedScheduler | None = None
        self.step = 0
        self.program = program
        self._outbox: Outbox | None = None
        self._rows: dict[RequestKey, _Row] = {}
        self._by_id: dict[str, _Row] = {}
        self._over: Tombstones[RequestKey, None] = Tombstones()
        self._ids = RequestIds()
        self._commands: list[object] = []
        self._launched: deque[float] = deque()
        self._stopped = False
        program.bind(self)

    # The stage's side

    def run(self, outbox: Outbox) -> None:
        """Body of the thread: SGLang's own loop."""
        assert self.hosted is not None, "the factory starts the engine before the stage runs"
        self._outbox = outbox
        self.hosted.run_event_loop()

    def stop(self) -> None:
        """Make `run` return after the step in progress, on every rank."""
        self._stopped = True
        self.inbox.wake()

    @property
    def pool(self) -> PoolCounters:
        """What is free of the engine's memory now; callable from any thread."""
        assert self.hosted is not None, "the factory starts the engine before the stage runs"
        return pool_counters(self.hosted)

    # What a program may do

    def put(self, message: OutboxMessage) -> None:
        """Put a message into the outbox."""
        assert self._outbox is not None, "nothing is put before the stage runs"
        self._outbox.put(message)

    def knows(self, key: RequestKey) -> bool:
        """Open a request on its first sign of life; return False when it is over."""
        if key in self._over:
            return False
        if key not in self._rows:
            self._rows[key] = _Row(key)
        return True

    def submit(self, key: RequestKey, generation: Generation) -> str:
        """Hand a request to the engine and return the engine's id of it."""
        row = self._rows[key]
        row.request_id, row.grammar = self._ids.next(), generation.grammar
        self._by_id[row.request_id] = row
        self._commands.append(Submit(row.request_id, generation, seed_of(key)))
        if row.stalled:
            self._commands.append(Gate(row.request_id, open=False))
        return row.request_id

    def end(self, key: RequestKey, verdict: OutboxMessage) -> None:
        """End a request from outside; `verdict` is said once nothing is held any more."""
        row = self._rows.get(key)
        if row is None or row.verdict is not None:
            return
        row.verdict = verdict
        if row.request_id is None:
            self._conclude(row, verdict)
            return
        self._commands.append(Cancel(row.request_id))

    # The engine's side (hosted_scheduler.Host)

    def pull(self) -> list[object]:
        """Turn what came in the inbox into SGLang's messages."""
        for message in self.inbox.drain():
            self._take(message)
        if self._stopped:
            self._commands.append(Stop())
        commands, self._commands = self._commands, []
        return commands

    def wait(self, timeout_seconds: float | None) -> None:
        """Sleep until a message comes."""
        self.inbox.wait(timeout_seconds)

    def may_run(self, req: Req) -> bool:
        """Ask the program."""
        return self.program.may_run(req)

    def launching(self, batch: ScheduleBatch) -> None:
        """A step begins: from here on silence means trouble."""
        self._launched.append(self.heartbeat.begin())

    def launched(self, batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        """Let the program see a step that has run."""
        self.program.launched(batch, result)

    def failed(self, batch: ScheduleBatch) -> None:
        """Let the program see a step that raised."""
        self.program.failed(batch)

    def settling(self, batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        """Let the program see a step before its requests may be released."""
        self.step += 1
        self.program.settling(batch)

    def settled(self) -> None:
        """The step is over."""
        self.heartbeat.end(self._launched.popleft())

    def streamed(self, reqs: Sequence[Req]) -> None:
        """Send what a step made, then say how requests ended."""
        rows = [tokens for req in reqs if (tokens := self._new_tokens(req)) is not None]
        for output in self.program.produced([row for row in rows if row.tokens or row.finish]):
            self.put(output)
        for row in rows:
            if row.finish is not None:
                self._finish(row)

    def aborted(self, request_id: str, reason: Mapping[str, object] | None) -> None:
        """SGLang let go of a request outside a step."""
        row = self._by_id.get(request_id)
        if row is not None:
            verdict = row.verdict or RequestError(row.key, refusal_of(reason, row.grammar))
            self._conclude(row, verdict)

    def _take(self, message: InboxMessage) -> None:
        match message:
            case AbortRequest(key):
                self.end(key, Aborted(key))
            case Stall(key) | Resume(key):
                self._gate(key, isinstance(message, Stall))
            case NewRequest(payload):
                if not self.knows(payload.key):
                    return
                try:
                    self.program.take(message)
                except Exception as error:  # one malformed request must not end the stage
                    self.end(payload.key, RequestError(payload.key, failure_of(error)))
            case Chunks() | StreamDone():
                self.program.take(message)
            case Opened() | Drain():
                pass  # Rows never wait for company, and a request begins with its first data.

    def _gate(self, key: RequestKey, stalled: bool) -> None:
        row = self._rows.get(key)
        if row is None:
            return
        row.stalled = stalled
        if row.request_id is not None:
            self._commands.append(Gate(row.request_id, open=not stalled))

    def _new_tokens(self, req: Req) -> NewTokens | None:
        row = self._by_id.get(req.rid)
        if row is None:
            return None
        finish = Finish.of(req, row.grammar) if req.finished() else None
        until = len(req.output_ids) if finish is None else finish.shown
        tokens = tuple(req.output_ids[row.sent : until])
        failed = finish is not None and finish.error is not None
        if row.verdict is not None or failed:
            tokens = ()
        assert self.hosted is not None, "steps are its"
        ledger = self.hosted.row_sampler.logprobs
        logprobs = ledger.take(req.rid, row.sent, row.sent + len(tokens))
        row.sent = max(row.sent, until)
        return NewTokens(row.key, req.rid, tokens, finish, logprobs)

    def _finish(self, tokens: NewTokens) -> None:
        row = self._by_id[tokens.request_id]
        assert tokens.finish is not None
        if row.verdict is not None:
            self._conclude(row, row.verdict)
        elif tokens.finish.error is not None:
            self._conclude(row, RequestError(row.key, tokens.finish.error))
        else:
            self._conclude(row, self.program.result(tokens))

    def _conclude(self, row: _Row, verdict: OutboxMessage) -> None:
        self._over.add(row.key, None)
        self._rows.pop(row.key, None)
        if row.request_id is not None:
            self._by_id.pop(row.request_id, None)
        self.program.drop(row.key)
        self.put(verdict)
