"""The toy engine: next token = argmax of a matrix times the sum of what came before.

Each rank holds some columns of the matrix, multiplies its part of the state and adds the parts up
over gloo, as a real engine does over NCCL. All numbers are whole, so the sum is the same however it
is divided. Before each step the ranks compare which requests they step: a rank that heard of an
abort later than the others would be found out at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from omni_runtime.scheduler import Result, StepOutput
from omni_runtime.streaming_scheduler import StepResult, StreamingScheduler, StreamRow
from omni_wire.identity import RequestKey

VOCABULARY = 97
STATE = 32


def make_engine(
    tp_rank: int = 0,
    tp_size: int = 1,
    nccl_port: int | None = None,
    gpu_id: int | None = None,
    max_rows: int = 16,
) -> StreamingScheduler[Generation]:
    """Make one rank of the engine.

    Args:
        tp_rank: this rank.
        tp_size: how many ranks divide the matrix.
        nccl_port: TCP port at which they meet.
        gpu_id: what placement chose; the toy computes on the CPU.
        max_rows: most requests in one step.
    """
    del gpu_id
    if tp_size > 1:
        meeting_point = f"tcp://127.0.0.1:{nccl_port}"
        dist.init_process_group("gloo", meeting_point, rank=tp_rank, world_size=tp_size)
    return StreamingScheduler(Engine(tp_rank, tp_size), max_rows=max_rows)


@dataclass
class Generation:
    """What one request has generated."""

    tokens: list[int] = field(default_factory=list)


class RanksDiffer(RuntimeError):
    """Two ranks were about to step different requests."""


class Engine:
    """One rank of the matrix."""

    def __init__(self, rank: int, size: int) -> None:
        columns = slice(rank * STATE // size, (rank + 1) * STATE // size)
        everything = torch.Generator().manual_seed(7)
        matrix = torch.randint(-9, 10, (VOCABULARY, STATE), generator=everything).double()
        embedding = torch.randint(-9, 10, (VOCABULARY, STATE), generator=everything).double()
        self._matrix = matrix[:, columns]
        self._embedding = embedding[:, columns]
        self._size = size

    def open(self, key: RequestKey) -> Generation:
        """Return the state of a new request."""
        return Generation()

    def ready(self, row: StreamRow[Generation]) -> bool:
        """A request can always go on once it is here."""
        return row.payload is not None

    def close(self, row: StreamRow[Generation]) -> None:
        """Nothing is held."""

    def step(self, rows: Sequence[StreamRow[Generation]]) -> StepResult:
        """Generate a token for every request; one that has its fill makes its result instead."""
        self._compare([row.key for row in rows])
        going = [row for row in rows if len(row.state.tokens) < _wanted(row)]
        ended = [row for row in rows if row not in going]
        finished = tuple(Result(row.key, {"tokens": row.state.tokens}) for row in ended)
        if not going:
            return StepResult(finished=finished)
        tokens = self._next_tokens(going)
        for row, token in zip(going, tokens.tolist(), strict=True):
            row.state.tokens.append(token)
        keys = tuple(row.key for row in going)
        output = StepOutput(0, keys, {"number": tokens.numpy()}, modality="text")
        return StepResult((output,), finished)

    def _next_tokens(self, rows: Sequence[StreamRow[Generation]]) -> torch.Tensor:
        states = [
            self._embedding[[_prompt(row), *row.state.tokens]].sum(dim=0) % VOCABULARY
            for row in rows
        ]
        logits = torch.stack(states) @ self._matrix.T
        if self._size > 1:
            dist.all_reduce(logits)
        return logits.argmax(dim=1)

    def _compare(self, keys: Sequence[RequestKey]) -> None:
        if self._size == 1:
            return
        digest = hashlib.sha256(repr(keys).encode()).digest()[:7]
        mine = torch.tensor([int.from_bytes(digest)])
        all_ranks = [torch.empty_like(mine) for _ in range(self._size)]
        dist.all_gather(all_ranks, mine)
        if any(not torch.equal(theirs, mine) for theirs in all_ranks):
            raise RanksDiffer(f"this rank steps {[key.request_id for key in keys]}")


def _wanted(row: StreamRow[Generation]) -> int:
    return _param(row, "max_tokens")


def _prompt(row: StreamRow[Generation]) -> int:
    return _param(row, "prompt") % VOCABULARY


def _param(row: StreamRow[Generation], name: str) -> int:
    request = None if row.payload is None else row.payload.request
    value = 0 if request is None else request.params.get(name, 0)
    return value if isinstance(value, int) else 0
