"""What the scheduler made, on its way to peers and gateways. Part of `StageState`: no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from omni_runtime.columns import select_rows
from omni_runtime.scheduler import (
    Aborted,
    Admitted,
    OutboxMessage,
    RequestError,
    Result,
    StepOutput,
    Taken,
)
from omni_runtime.stage_events import GatewayPeer, GiveBack, Peer, ToPeer
from omni_runtime.stage_request import StageRequest
from omni_runtime.stage_table import RequestTable
from omni_runtime.stage_wiring import StageWiring
from omni_runtime.timeline import TIMELINE, Entry, entries_of, with_entries
from omni_wire.errors import InstanceLost, StageFailed
from omni_wire.identity import Endpoint
from omni_wire.messages import (
    Completed,
    Open,
    OutputFrame,
    Payload,
    RequestView,
    Rows,
    StepFrame,
    StreamDone,
    Tree,
)


class StageOutput:
    """Cuts steps into frames per receiver, routes results, returns credits of what was used."""

    def __init__(self, wiring: StageWiring, table: RequestTable) -> None:
        self._wiring = wiring
        self._table = table

    def made(self, message: OutboxMessage) -> None:
        """The scheduler put a message into its outbox."""
        match message:
            case StepOutput():
                self._rows(message)
            case Taken(source, keys):
                for key in keys:
                    if key in self._table.live:
                        release = self._table.live[key].chunk_taken(source)
                        self._table.ask(GiveBack(release, key))
            case Admitted(key):
                if key in self._table.live:
                    for release in self._table.live[key].payload_taken():
                        self._table.ask(GiveBack(release, key))
            case Result() | RequestError() | Aborted():
                self._ended(message)

    def _ended(self, message: Result | RequestError | Aborted) -> None:
        key = message.key
        request = self._table.live.get(key)
        if request is None:
            self._table.freed(key)
            return
        request.known = False
        match message:
            case Result():
                self._table.guarded(key, partial(self._finish, request, message))
            case RequestError(_, error):
                self._table.fail(key, error)
            case Aborted():
                self._table.fail(key, StageFailed("the scheduler dropped the request"))

    def _rows(self, output: StepOutput) -> None:
        receivers: dict[Peer, list[int]] = {}
        for index, key in enumerate(output.keys):
            request = self._table.live.get(key)
            if request is None:
                continue
            peer = self._table.guarded(key, partial(self._receiver, request, output.target))
            if peer is not None:
                if request.first_output_at is None:
                    request.first_output_at = self._table.now
                self._open_peer(request, peer)
                receivers.setdefault(peer, []).append(index)
        for peer, indices in receivers.items():
            self._table.ask(ToPeer(peer, self._frame(output, peer, indices)))

    def _receiver(self, request: StageRequest, target: str | None) -> Peer:
        self._wiring.routes.require_stream_target(target)
        if target is None:
            return GatewayPeer(request.key.gateway)
        return _endpoint(request, target)

    def _frame(self, output: StepOutput, peer: Peer, indices: list[int]) -> StepFrame | OutputFrame:
        keys = tuple([output.keys[index] for index in indices])
        rows = Rows(keys, [self._table.live[key].next_chunk_id(peer) for key in keys])
        whole = len(rows) == len(output.keys)
        columns = output.columns if whole else select_rows(output.columns, indices)
        source, step = self._wiring.instance, output.step
        if isinstance(peer, GatewayPeer):
            return OutputFrame(source, step, output.modality, rows, columns, output.meta)
        return StepFrame(source, step, rows, columns, output.meta)

    def _open_peer(self, request: StageRequest, peer: Peer) -> None:
        """Tell a peer of a request before its first row or stream end."""
        if peer in request.peers:
            return
        request.peers[peer] = None
        if isinstance(peer, Endpoint):
            source = self._wiring.instance
            view = request.view and replace(request.view, inputs={})
            opening = Open(request.key, source, request.bindings, request.deadline, view)
            self._table.ask(ToPeer(peer, opening))

    def _finish(self, request: StageRequest, result: Result) -> None:
        view = request.view if result.request is None else result.request
        payload = Payload(
            request.key,
            self._wiring.instance,
            result.data,
            self._timed(request, view),
            request.bindings,
            request.deadline,
        )
        # Everything that can raise comes first, so that a failed hook sends nothing.
        dones = list(self._done_endpoints(request, payload))
        payloads = list(self._payloads(request, payload))
        for endpoint in dones:
            self._open_peer(request, endpoint)
            sent = request.sent.get(endpoint, 0)
            self._table.ask(ToPeer(endpoint, StreamDone(payload.key, payload.source, sent)))
        for endpoint, trimmed in payloads:
            request.peers[endpoint] = None
            self._table.ask(ToPeer(endpoint, trimmed))
        if self._wiring.routes.terminal:
            gateway = GatewayPeer(request.key.gateway)
            request.peers[gateway] = None
            completed = Completed(payload.key, payload.source, _with_timeline(payload))
            self._table.ask(ToPeer(gateway, completed))
        self._table.finish(request)

    def _timed(self, request: StageRequest, view: RequestView | None) -> RequestView | None:
        """Add this stage to the timeline of a request that has one."""
        if view is None or entries_of(view) is None:
            return view
        unix, first = self._table.unix_offset, request.first_output_at
        entry = Entry(
            self._wiring.instance,
            request.opened_at + unix,
            None if first is None else first + unix,
            self._table.now + unix,
        )
        return with_entries(view, {**request.timeline, self._wiring.stage: entry.tree()})

    def _done_endpoints(self, request: StageRequest, payload: Payload) -> Iterator[Endpoint]:
        for stage in self._wiring.routes.done_targets(payload):
            yield _endpoint(request, stage)

    def _payloads(
        self, request: StageRequest, payload: Payload
    ) -> Iterator[tuple[Endpoint, Payload]]:
        targets: Mapping[str, Payload] = dict(self._wiring.routes.payloads(payload))
        for target, trimmed in targets.items():
            yield _endpoint(request, target), trimmed


def _with_timeline(payload: Payload) -> Tree:
    """Return the result for the client, with the timeline where one was wanted."""
    entries = entries_of(payload.request)
    if entries is None or not isinstance(payload.data, Mapping):
        return payload.data
    return {**payload.data, TIMELINE: entries}


def _endpoint(request: StageRequest, target: str) -> Endpoint:
    endpoint = request.bindings.get(target)
    if endpoint is None:
        raise InstanceLost(f"the request is bound to no instance of '{target}'", stage=target)
    return endpoint
