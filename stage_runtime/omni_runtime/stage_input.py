"""What comes to a stage, on its way to the scheduler. Part of `StageState`: no I/O."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from omni_config.errors import OmniError
from omni_runtime.scheduler import Chunks, NewRequest, Opened
from omni_runtime.stage_events import GiveBack, ToScheduler
from omni_runtime.stage_request import StageRequest
from omni_runtime.stage_table import RequestTable
from omni_runtime.stage_wiring import StageWiring
from omni_runtime.timeline import entries_of
from omni_wire.edge import Release
from omni_wire.errors import Draining, RequestExists, StageFailed, WireFormatError, from_info
from omni_wire.identity import GATEWAY_SOURCE, RequestKey, stage_of
from omni_wire.messages import (
    Abort,
    EdgeMessage,
    Open,
    Payload,
    Rows,
    StepFrame,
    StreamDone,
    StreamError,
)


class StageInput:
    """Merges payloads, checks the order of chunks and remembers what came early."""

    def __init__(self, wiring: StageWiring, table: RequestTable) -> None:
        self._wiring = wiring
        self._table = table
        self.draining = False

    def submitted(self, payload: Payload, release: Release) -> None:
        """A gateway starts a request here; refuse it while draining, or if its key is in use."""
        key, refusal = payload.key, self._refusal(payload.key)
        if refusal is None:
            self._payload(payload, release)
            return
        self._give_back(release, key)
        self._table.report(key, refusal)

    def delivered(self, message: EdgeMessage, release: Release) -> None:
        """An edge brought a message."""
        match message:
            case StepFrame():
                self._frame(message, release)
            case Payload():
                self._payload(message, release)
            case Open() | StreamDone() | StreamError() | Abort():
                self._signal(message)
                self._give_back(release, message.key)

    def _refusal(self, key: RequestKey) -> OmniError | None:
        if self.draining:
            return Draining("this instance is about to stop")
        if self._table.is_over(key) or key in self._table.live:
            return RequestExists(f"request {key} is known here already")
        return None

    def _signal(self, message: Open | StreamDone | StreamError | Abort) -> None:
        match message:
            case Open(key, _, bindings, deadline, view):
                if not self._table.is_over(key):
                    request = self._table.open(key, bindings, deadline)
                    request.view = request.view or view
            case StreamDone():
                self._done(message)
            case StreamError(key, _, info):
                self._table.fail(key, from_info(info))
            case Abort(key, reason):
                self._table.abort(key, reason, acknowledge=False)

    def _payload(self, payload: Payload, release: Release) -> None:
        key = payload.key
        if self._table.is_over(key):
            self._give_back(release, key)
            return
        request = self._table.open(key, payload.bindings, payload.deadline)
        request.hold_payload(release)
        request.timeline.update(entries_of(payload.request) or {})
        source = payload.source if payload.source == GATEWAY_SOURCE else stage_of(payload.source)
        merged = self._table.guarded(key, partial(request.fan_in.add, source, payload))
        if merged is None:
            return
        request.view = merged.request
        request.admitted = request.known = True
        whole = replace(
            merged, key=key, source=source, bindings=request.bindings, deadline=request.deadline
        )
        self._table.ask(ToScheduler(NewRequest(whole)))
        for done in request.latched:
            self._table.ask(ToScheduler(done))
        request.latched = []

    def _frame(self, frame: StepFrame, release: Release) -> None:
        source = stage_of(frame.source)
        rows = Rows.of(frame.rows)
        live = [
            index
            for index, (key, chunk_id) in enumerate(zip(rows.keys, rows.chunk_ids, strict=True))
            if self._chunk(source, key, chunk_id, release)
        ]
        if live:
            self._table.ask(ToScheduler(Chunks(source, frame, tuple(live))))

    def _chunk(self, source: str, key: RequestKey, chunk_id: int, release: Release) -> bool:
        """Take one row; return whether the scheduler gets it."""
        request = self._table.live.get(key)
        if request is None:
            self._give_back(release, key)
            return False
        expected = request.received.get(source, 0)
        request.hold_chunk(source, release)
        request.input_at = self._table.now
        if chunk_id != expected:
            problem = f"chunk {chunk_id} of '{source}' came when {expected} was due"
            self._table.fail(key, WireFormatError(problem))
            return False
        if not request.admitted and not self._wiring.early_chunks:
            problem = f"a chunk of '{source}' came before the payload"
            self._table.fail(key, StageFailed(problem))
            return False
        self._introduce(request)
        return True

    def _done(self, done: StreamDone) -> None:
        request = self._table.live.get(done.key)
        if request is None:
            return
        source = stage_of(done.source)
        received = request.received.setdefault(source, 0)
        request.ended.add(source)
        request.input_at = self._table.now
        if received != done.chunks:
            problem = f"'{source}' sent {done.chunks} chunks, {received} came"
            self._table.fail(done.key, WireFormatError(problem))
            return
        done = replace(done, source=source)
        if request.admitted or self._wiring.early_chunks:
            self._introduce(request)
            self._table.ask(ToScheduler(done))
        else:
            request.latched.append(done)

    def _introduce(self, request: StageRequest) -> None:
        """Tell the scheduler whose rows will come, before the first of them."""
        if not request.known and request.view is not None:
            self._table.ask(ToScheduler(Opened(request.key, request.view)))
        request.known = True

    def _give_back(self, release: Release, key: RequestKey) -> None:
        self._table.ask(GiveBack(release, key))
