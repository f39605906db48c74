"""Rows step together, wait alone, and leave before their result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from omni_runtime.scheduler import (
    Aborted,
    AbortRequest,
    Admitted,
    Chunks,
    NewRequest,
    RequestError,
    Result,
    Resume,
    Stall,
    StepOutput,
    Taken,
)
from omni_runtime.streaming_scheduler import Chunk, StepResult, StreamingScheduler, StreamRow
from omni_wire.identity import RequestKey
from omni_wire.messages import Rows, StepFrame, StreamDone
from omni_wire.tensor import Tensor
from tests.support.schedulers import DrivenScheduler
from tests.support.stage_events import frame, key, payload


class Copying:
    """Passes chunks of `up` on; finishes when the stream has ended and the payload is there."""

    def __init__(self) -> None:
        self.closed: list[RequestKey] = []
        self.steps: list[list[str]] = []
        self.failing = ""

    def open(self, key: RequestKey) -> None:
        if key.request_id == "unopenable":
            raise MemoryError

    def ready(self, row: StreamRow[None]) -> bool:
        return bool(row.waiting("up")) or (row.payload is not None and row.exhausted("up"))

    def close(self, row: StreamRow[None]) -> None:
        self.closed.append(row.key)

    def step(self, rows: Sequence[StreamRow[None]]) -> StepResult:
        self.steps.append([row.key.request_id for row in rows])
        if self.failing in self.steps[-1]:
            raise ZeroDivisionError
        going = [row for row in rows if row.waiting("up")]
        numbers = [
            chunk.frame.columns["number"][chunk.index]  # type: ignore[index]
            for chunk in (row.take("up") for row in going)
        ]
        output = StepOutput(0, tuple(row.key for row in going), {"number": np.array(numbers)})
        ended = [row for row in rows if row not in going]
        return StepResult(
            outputs=(output,) if going else (),
            finished=tuple(Result(row.key, None) for row in ended),
        )


@pytest.fixture
def program() -> Copying:
    return Copying()


@pytest.fixture
def driven(program: Copying) -> DrivenScheduler:
    return DrivenScheduler(StreamingScheduler(program))


def chunks(*rows: tuple[str, int]) -> Chunks:
    return Chunks("up", frame("up", *rows), tuple(range(len(rows))))


def done(name: str, count: int) -> StreamDone:
    return StreamDone(key(name), "up", count)


def test_requests_with_input_share_a_step(driven: DrivenScheduler, program: Copying) -> None:
    driven.put(chunks(("a", 0), ("b", 0)))
    assert program.steps == [["a", "b"]]
    assert driven.outbox.of(Taken) == [Taken("up", (key("a"), key("b")))]
    assert len(driven.outbox.of(StepOutput)) == 1


def test_a_row_without_input_waits_alone(driven: DrivenScheduler, program: Copying) -> None:
    driven.put(chunks(("a", 0), ("b", 0)))
    driven.put(chunks(("b", 1)))
    assert program.steps == [["a", "b"], ["b"]]


def test_a_stalled_row_waits_alone_and_goes_on(driven: DrivenScheduler, program: Copying) -> None:
    driven.put(NewRequest(payload("a")), Stall(key("a")), chunks(("a", 0), ("b", 0)))
    assert program.steps == [["b"]]
    driven.put(Resume(key("a")))
    assert program.steps == [["b"], ["a"]]


def test_rows_leave_before_the_result(driven: DrivenScheduler) -> None:
    driven.put(NewRequest(payload("a")), chunks(("a", 0)), done("a", 1))
    driven.finish()
    kinds = [type(message) for message in driven.outbox.messages]
    assert kinds == [Admitted, Taken, StepOutput, Result]


def test_input_before_the_payload_is_kept(driven: DrivenScheduler) -> None:
    driven.put(chunks(("a", 0)), done("a", 1))
    driven.finish()
    assert driven.outbox.of(Result) == []
    driven.put(NewRequest(payload("a")))
    assert [result.key for result in driven.outbox.of(Result)] == [key("a")]


def test_what_comes_after_the_end_changes_nothing(
    driven: DrivenScheduler, program: Copying
) -> None:
    driven.put(NewRequest(payload("a")), done("a", 0))
    driven.put(chunks(("a", 0)), done("a", 1), AbortRequest(key("a"), "late"))
    driven.finish()
    assert driven.outbox.of(Aborted) == []
    assert program.closed == [key("a")]
    assert driven.scheduler.in_flight == 0  # type: ignore[attr-defined]


def test_an_abort_frees_the_row_once(driven: DrivenScheduler, program: Copying) -> None:
    driven.put(chunks(("a", 0)))
    driven.put(AbortRequest(key("a"), "left"))
    driven.put(AbortRequest(key("a"), "left"))
    assert driven.outbox.of(Aborted) == [Aborted(key("a"))]
    assert program.closed == [key("a")]


def test_a_failing_step_fails_its_rows_only(driven: DrivenScheduler, program: Copying) -> None:
    program.failing = "a"
    driven.put(chunks(("a", 0), ("b", 0)))
    driven.put(chunks(("c", 0)))
    assert [error.key.request_id for error in driven.outbox.of(RequestError)] == ["a", "b"]
    assert program.closed == [key("a"), key("b")]
    assert program.steps[-1] == ["c"]


def test_a_request_that_cannot_be_opened_fails_alone(driven: DrivenScheduler) -> None:
    driven.put(NewRequest(payload("unopenable")), chunks(("a", 0)))
    assert [error.key.request_id for error in driven.outbox.of(RequestError)] == ["unopenable"]
    assert len(driven.outbox.of(StepOutput)) == 1


def test_those_who_waited_longest_go_first(program: Copying) -> None:
    driven = DrivenScheduler(StreamingScheduler(program, max_rows=2))
    for chunk_id in range(2):
        for name in "abc":
            driven.scheduler.inbox.put(chunks((name, chunk_id)))
    driven.finish()
    assert program.steps == [["a", "b"], ["c", "a"], ["b", "c"]]


def test_a_step_needs_room_for_one_row(program: Copying) -> None:
    with pytest.raises(ValueError, match="max_rows"):
        StreamingScheduler(program, max_rows=0)


def test_a_request_that_lags_does_not_keep_what_others_were_sent() -> None:
    row = StreamRow(key("b"), None)
    keys = (key("a"), key("b"))
    for step in range(10):
        column = Tensor.of_numpy(np.array([-1, step]))
        row.offer("up", Chunk(StepFrame("up", step, Rows(keys, [step] * 2), {"x": column}), 1))
    taken = [row.take("up") for _ in range(10)]
    kept = [chunk.frame.columns["x"] for chunk in taken]
    assert [column.shape[0] for column in kept] == [2] * 4 + [1] * 6
    assert [
        column.numpy()[chunk.index]
        for chunk, column in zip(taken, kept, strict=True)
        if isinstance(column, Tensor)
    ] == list(range(10))
