"""Hidden rows of media positions, right also where the prefix cache spared their computation.

The talker wants, for each placeholder of the user's media, the row that enters one layer of the
thinker. A row depends on everything before it, exactly as the keys and values of its position do,
so it is kept by the slot of those: whoever shares the slot shares the row. Rows wait in host
memory, where they are needed for sending anyway, and pages of the store that are never written cost
nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req, ScheduleBatch

    from omni_models.qwen3_omni.segments import Ints


@dataclass(slots=True)
class RowsOfRequest:
    """Media positions of one prompt.

    Attributes:
        positions: of every placeholder, ascending.
        wanted: those the talker wants, ascending; empty when nobody listens.
        sent: how many of them have left.
    """

    positions: Ints
    wanted: Ints
    sent: int = 0


@dataclass(frozen=True, slots=True)
class Capture:
    """Rows of one prefill on their way to the host.

    Attributes:
        positions: per request id, which of its positions were computed.
        rows: [sum of positions, hidden], in that order.
        ready: recorded after the copy; None on a CPU.
    """

    positions: dict[str, Ints]
    rows: torch.Tensor
    ready: Any


class MediaRowStore:
    """Rows by slot of keys and values, on the host.

    Args:
        slots: size of the KV pool.
        width: hidden size.
        dtype: of the model.
    """

    def __init__(self, slots: int, width: int, dtype: torch.dtype) -> None:
        self._rows = torch.empty((slots, width), dtype=dtype)

    def write(self, slots: torch.Tensor, rows: torch.Tensor) -> None:
        """Keep rows [n, width] under slots int64 [n]."""
        self._rows[slots] = rows

    def read(self, slots: torch.Tensor) -> torch.Tensor:
        """Return a copy of the rows under slots, [n, width]."""
        return self._rows[slots]


class MediaRows:
    """Which rows a prefill must capture, and which may leave after it."""

    def __init__(self) -> None:
        self.requests: dict[str, RowsOfRequest] = {}
        self._captures: deque[Capture | None] = deque()
        self._unsettled = 0

    # Called by the model, around its forward pass

    def plan(
        self, request_ids: Sequence[str], starts: Sequence[int], ends: Sequence[int]
    ) -> tuple[dict[str, Ints], Ints]:
        """Return computed media positions by request, and their indices in the batch's tokens."""
        positions: dict[str, Ints] = {}
        indices, offset = [], 0
        for request_id, start, end in zip(request_ids, starts, ends, strict=True):
            request = self.requests.get(request_id)
            if request is not None:
                inside = request.positions[(request.positions >= start) & (request.positions < end)]
                positions[request_id] = inside
                indices.append(inside - start + offset)
            offset += end - start
        return positions, np.concatenate(indices) if indices else np.zeros(0, np.int64)

    def captured(self, positions: dict[str, Ints], rows: torch.Tensor) -> None:
        """Start bringing captured rows to the host, in the stream that made them."""
        ready = None
        if rows.is_cuda:
            host = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
            host.copy_(rows, non_blocking=True)
            ready = torch.cuda.Event()
            ready.record()
            rows = host
        self._captures.append(Capture(positions, rows, ready))

    def skipped(self) -> None:
        """A prefill had no media."""
        self._captures.append(None)

    # Called by the stage, step by step

    def launched(self) -> None:
        """A prefill has run; it will be settled."""
        self._unsettled += 1

    def failed(self) -> None:
        """A step raised, maybe after it had captured rows; it will not be settled."""
        while len(self._captures) > self._unsettled:
            self._captures.pop()

    def settle(self, batch: ScheduleBatch, store: MediaRowStore) -> dict[str, torch.Tensor]:
        """Store what the oldest open prefill captured; return rows that may leave, by request.

        A request's rows leave in the order of its positions, each once.
        """
        capture = self._captures.popleft()
        self._unsettled -= 1
        requests = {req.rid: req for req in batch.reqs if req.kv.req_pool_idx is not None}
        if capture is not None:
            self._store(capture, requests, batch, store)
        leaving = {}
        for request_id, req in requests.items():
            request = self.requests.get(request_id)
            if request is None or request.sent == len(request.wanted):
                continue
            until = int(np.searchsorted(request.wanted, req.extend_end))
            positions = request.wanted[request.sent : until]
            if len(positions):
                leaving[request_id] = store.read(_slots(batch, req, positions))
                request.sent = until
        return leaving

    def _store(
        self,
        capture: Capture,
        requests: dict[str, Req],
        batch: ScheduleBatch,
        store: MediaRowStore,
    ) -> None:
        if capture.ready is not None:
            capture.ready.synchronize()
        offset = 0
        for request_id, positions in capture.positions.items():
            rows = capture.rows[offset : offset + len(positions)]
            offset += len(positions)
            req = requests.get(request_id)
            # A request retracted in the meantime computes them again.
            if req is not None and len(positions):
                store.write(_slots(batch, req, positions), rows)


def _slots(batch: ScheduleBatch, req: Req, positions: Ints) -> torch.Tensor:
    table = batch.req_to_token_pool.req_to_token
    index = torch.from_numpy(np.ascontiguousarray(positions)).to(table.device)
    return table[req.kv.req_pool_idx, index].long().cpu()
