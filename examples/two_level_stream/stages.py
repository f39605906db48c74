"""What the stages of the two-level stream compute, a step at a time for many requests.

The writer of a request with `params.start` and `params.count` makes start, start + 1, …; the
speaker makes a sound frame of `FRAME_SAMPLES` equal samples from each number; `text` and `sound`
pass on what comes and answer with a summary.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from examples.two_level_stream.routing import speaks
from omni_runtime.scheduler import RequestError, Result, StepOutput
from omni_runtime.streaming_scheduler import Chunk, StepResult, StreamingScheduler, StreamRow
from omni_wire.errors import InvalidRequest
from omni_wire.identity import RequestKey
from omni_wire.trees import to_numpy

FRAME_SAMPLES = 4

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def make_writer(step_seconds: float = 0.0, max_rows: int = 64) -> StreamingScheduler[Writing]:
    """Make the writer.

    Args:
        step_seconds: how long a step takes, whatever the number of rows.
        max_rows: most requests in one step.
    """
    return StreamingScheduler(Writer(step_seconds), max_rows=max_rows)


def make_text(max_rows: int = 64) -> StreamingScheduler[Passing]:
    """Make the terminal that shows the numbers. `max_rows`: most requests in one step."""
    return StreamingScheduler(Relay("writer", None, "text", _as_they_are), max_rows=max_rows)


def make_speaker(
    step_seconds: float = 0.0, most_frames: int | None = None, max_rows: int = 64
) -> StreamingScheduler[Passing]:
    """Make the stage that turns numbers into sound frames.

    Args:
        step_seconds: how long a step takes, whatever the number of rows.
        most_frames: frames after which a request has been spoken, whatever else is written.
        max_rows: most requests in one step.
    """
    speaker = Relay("writer", "sound", "", _sound_frames, step_seconds, most_frames)
    return StreamingScheduler(speaker, max_rows=max_rows)


def make_sound(max_rows: int = 64) -> StreamingScheduler[Passing]:
    """Make the terminal that plays the frames. `max_rows`: most requests in one step."""
    return StreamingScheduler(Relay("speaker", None, "audio", _as_they_are), max_rows=max_rows)


@dataclass(slots=True)
class Writing:
    """How far the writer is with one request."""

    written: int = 0


@dataclass(slots=True)
class Passing:
    """What went through a relay for one request."""

    chunks: int = 0
    total: int = 0


class Writer:
    """One number per request and step, for the request's targets."""

    def __init__(self, step_seconds: float) -> None:
        self._step_seconds = step_seconds

    def open(self, key: RequestKey) -> Writing:
        """Return the state of a new request."""
        return Writing()

    def ready(self, row: StreamRow[Writing]) -> bool:
        """A request can always go on once it is here."""
        return row.payload is not None

    def close(self, row: StreamRow[Writing]) -> None:
        """Nothing is held."""

    def step(self, rows: Sequence[StreamRow[Writing]]) -> StepResult:
        """Write one number of every request; a finished one makes its result instead."""
        _pause(self._step_seconds)
        failed = [RequestError(row.key, error) for row in rows if (error := _refusal(row))]
        refused = {failure.key for failure in failed}
        left = [row for row in rows if row.key not in refused]
        writing = [row for row in left if row.state.written < _param(row, "count")]
        ending = [row for row in left if row.state.written >= _param(row, "count")]
        return StepResult(
            outputs=tuple(self._outputs(writing)),
            finished=tuple(Result(row.key, {"count": row.state.written}) for row in ending),
            failed=tuple(failed),
        )

    def _outputs(self, rows: list[StreamRow[Writing]]) -> list[StepOutput]:
        if not rows:
            return []
        numbers = np.array([_param(row, "start") + row.state.written for row in rows], np.int64)
        for row in rows:
            row.state.written += 1
        keys = tuple(row.key for row in rows)
        outputs = [StepOutput(0, keys, {"number": numbers}, "text")]
        aloud = [
            index
            for index, row in enumerate(rows)
            if row.payload is not None and speaks(row.payload.request)
        ]
        if aloud:
            spoken = tuple(keys[index] for index in aloud)
            outputs.append(StepOutput(0, spoken, {"number": numbers[aloud]}, "speaker"))
        return outputs


class Relay:
    """Passes one chunk per request and step on to `target`, None being the client."""

    def __init__(
        self,
        source: str,
        target: str | None,
        modality: str,
        convert: Callable[[Numbers], Numbers],
        step_seconds: float = 0.0,
        most_chunks: int | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._modality = modality
        self._convert = convert
        self._step_seconds = step_seconds
        self._most_chunks = most_chunks

    def open(self, key: RequestKey) -> Passing:
        """Return the state of a new request."""
        return Passing()

    def ready(self, row: StreamRow[Passing]) -> bool:
        """A chunk has come, or everything has and the payload too."""
        if row.waiting(self._source) or self._has_enough(row):
            return True
        return row.payload is not None and row.exhausted(self._source)

    def close(self, row: StreamRow[Passing]) -> None:
        """Nothing is held."""

    def step(self, rows: Sequence[StreamRow[Passing]]) -> StepResult:
        """Pass on one chunk of every request that goes on; the others are finished."""
        _pause(self._step_seconds)
        ended = [row for row in rows if self._has_enough(row) or not row.waiting(self._source)]
        going = [row for row in rows if row not in ended]
        return StepResult(
            outputs=self._outputs(going),
            finished=tuple(
                Result(row.key, {"chunks": row.state.chunks, "total": row.state.total})
                for row in ended
            ),
        )

    def _has_enough(self, row: StreamRow[Passing]) -> bool:
        return row.state.chunks == self._most_chunks

    def _outputs(self, rows: list[StreamRow[Passing]]) -> tuple[StepOutput, ...]:
        if not rows:
            return ()
        numbers = np.stack([_number(row.take(self._source)) for row in rows])
        converted = self._convert(numbers)
        for row, values in zip(rows, converted, strict=True):
            row.state.chunks += 1
            row.state.total += int(values.sum())
        keys = tuple(row.key for row in rows)
        columns = {"number": converted}
        return (StepOutput(0, keys, columns, self._target, self._modality),)


def _number(chunk: Chunk) -> Numbers:
    column: Numbers = np.asarray(to_numpy(chunk.frame.columns["number"]))
    number: Numbers = column[chunk.index]
    return number


def _as_they_are(numbers: Numbers) -> Numbers:
    return numbers


def _sound_frames(numbers: Numbers) -> Numbers:
    return np.repeat(numbers[:, None], FRAME_SAMPLES, axis=1)


def _refusal(row: StreamRow[Writing]) -> InvalidRequest | None:
    count = _param(row, "count")
    return InvalidRequest(f"params.count must not be negative, got {count}") if count < 0 else None


def _param(row: StreamRow[Writing], name: str) -> int:
    request = None if row.payload is None else row.payload.request
    value = 0 if request is None else request.params.get(name, 0)
    return value if isinstance(value, int) else 0


def _pause(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)
