"""What a client sees of its requests: rows per terminal in order, results, one end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from omni_config.schema import PipelineConfig
from omni_runtime.stage_wiring import load_hook
from omni_wire.errors import ErrorInfo
from omni_wire.identity import GATEWAY_SOURCE, Endpoint, RequestKey, stage_of
from omni_wire.messages import Completed, Failed, Message, OutputFrame, Payload, RequestView
from omni_wire.trees import to_numpy

GATEWAY = "00000000cafe"


@dataclass(eq=False)
class Call:
    """One request.

    Attributes:
        rows: per terminal stage, the column `number` of every row, in order.
        results: per terminal stage, what it completed with.
        unacknowledged: endpoints that have not yet let go of it after an abort.
    """

    key: RequestKey
    view: RequestView
    bindings: Mapping[str, Endpoint]
    terminals: tuple[str, ...]
    rows: dict[str, list[Any]] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    error: ErrorInfo | None = None
    aborted: bool = False
    unacknowledged: set[Endpoint] = field(default_factory=set)

    @property
    def ended(self) -> bool:
        """Whether the client has its answer."""
        return self.error is not None or self.aborted or self.results.keys() == set(self.terminals)

    @property
    def payload(self) -> Payload:
        """What the entry stage gets."""
        return self.payload_until(None)

    def payload_until(self, deadline: float | None) -> Payload:
        """What the entry stage gets of a request with a deadline, in monotonic seconds."""
        return Payload(self.key, GATEWAY_SOURCE, {}, self.view, self.bindings, deadline)


class CallBook:
    """Every request of one gateway.

    Args:
        config: the pipeline.
        on_failed: called when a stage fails a request that had not ended.
        gateway: its incarnation id.
    """

    def __init__(
        self,
        config: PipelineConfig,
        on_failed: Callable[[Call], None],
        gateway: str = GATEWAY,
    ) -> None:
        self._gateway = gateway
        self.calls: dict[RequestKey, Call] = {}
        self._config = config
        self._on_failed = on_failed

    def open(self, request_id: str, bindings: Mapping[str, Endpoint], view: RequestView) -> Call:
        """Return a new request."""
        choose = self._config.terminal_stages_fn
        terminals = tuple(load_hook(choose)(view)) if choose else self._config.terminals
        key = RequestKey(self._gateway, request_id)
        call = self.calls[key] = Call(key, view, bindings, terminals)
        return call

    def receive(self, message: Message) -> None:
        """Take a message from a stage; fails if it is one a gateway must never see."""
        match message:
            case OutputFrame():
                self._rows(message)
            case Completed(key, source, result):
                call = self.calls[key]
                assert stage_of(source) not in call.results, "a terminal completed twice"
                assert stage_of(source) in call.terminals, "nobody waits for this terminal"
                call.results[stage_of(source)] = to_numpy(result)
            case Failed(key, _, error):
                if not self.calls[key].ended:
                    self.fail(self.calls[key], error)

    def fail(self, call: Call, error: ErrorInfo) -> None:
        """End a request with an error."""
        call.error = error
        self._on_failed(call)

    def _rows(self, frame: OutputFrame) -> None:
        values = np.asarray(to_numpy(frame.columns["number"]))
        for (key, chunk_id), value in zip(frame.rows, values, strict=True):
            seen = self.calls[key].rows.setdefault(stage_of(frame.source), [])
            assert chunk_id == len(seen), f"chunk {chunk_id} came after {len(seen)}"
            seen.append(value.tolist())
