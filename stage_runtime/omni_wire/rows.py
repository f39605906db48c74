"""Frames with some of their rows: those that may be sent now, or that somebody still wants."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from omni_wire.arrays import as_tensor, take_rows
from omni_wire.messages import OutputFrame, Rows, StepFrame

Frame = TypeVar("Frame", bound=StepFrame | OutputFrame)


def select(frame: Frame, indices: Sequence[int]) -> Frame:
    """The frame with these rows only, copied."""
    rows = Rows.of(frame.rows)
    chosen = Rows(
        tuple([rows.keys[index] for index in indices]),
        [rows.chunk_ids[index] for index in indices],
    )
    columns = {name: take_rows(array, indices) for name, array in frame.columns.items()}
    return replace(frame, rows=chosen, columns=columns)


def without(frame: Frame, indices: Collection[int]) -> Frame:
    """The frame without these rows, copied."""
    return select(frame, [row for row in range(len(frame.rows)) if row not in indices])


def divide(frame: Frame, max_bytes: int) -> Iterator[Frame]:
    """The frame as frames whose columns have at most `max_bytes` bytes, or a single row."""
    count = len(frame.rows)
    total = sum(as_tensor(array).nbytes for array in frame.columns.values())
    if total <= max_bytes or count < 2:
        yield frame
        return
    rows_each = max(1, count * max_bytes // total)
    for begin in range(0, count, rows_each):
        yield select(frame, range(begin, min(begin + rows_each, count)))
