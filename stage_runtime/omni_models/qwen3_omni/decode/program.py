"""What the decode stage does in one step: the text of whatever tokens have come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from omni_models.qwen3_omni.decode.text import GrowingText
from omni_models.qwen3_omni.decode.vocabulary import Vocabulary
from omni_runtime.columns import Columns
from omni_runtime.scheduler import RequestError, Result, StepOutput
from omni_runtime.streaming_scheduler import Chunk, StepResult, StreamRow
from omni_wire.arrays import array_to_numpy
from omni_wire.errors import StageFailed
from omni_wire.identity import RequestKey
from omni_wire.messages import Tree

THINKER = "thinker"
TOKEN_COLUMN = "token_id"


@dataclass(slots=True, eq=False)
class Answer:
    """One answer; `text` is None before its first step."""

    text: GrowingText | None = None


@dataclass(slots=True)
class _Delta:
    """What one step adds to one answer."""

    row: Row
    text: str = ""
    chunks: list[Chunk] = field(default_factory=list)


Row: TypeAlias = "StreamRow[Answer]"


class DecodeProgram:
    """A `StreamProgram` over the tokens of the thinker."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def open(self, key: RequestKey) -> Answer:
        """Return the state of a new answer."""
        return Answer()

    def ready(self, row: Row) -> bool:
        """Return whether tokens have come, or the thinker has ended and its payload is here."""
        return bool(row.waiting(THINKER)) or _is_over(row)

    def step(self, rows: Sequence[Row]) -> StepResult:
        """Turn all waiting tokens into text; end the answers that are over."""
        deltas = [self._delta(row) for row in rows]
        shown = [delta for delta in deltas if delta.chunks or delta.text]
        outputs = (_output(shown),) if shown else ()
        ended = [row for row in rows if _is_over(row)]
        results = [_result(row) for row in ended]
        return StepResult(
            outputs,
            tuple(result for result in results if isinstance(result, Result)),
            tuple(result for result in results if isinstance(result, RequestError)),
        )

    def close(self, row: Row) -> None:
        """Nothing is held outside the row."""

    def _delta(self, row: Row) -> _Delta:
        text = row.state.text
        if text is None:
            text = row.state.text = GrowingText(self._vocabulary, _stop_strings(row))
        delta = _Delta(row)
        while row.waiting(THINKER):
            delta.chunks.append(row.take(THINKER))
        delta.text = text.add(_value(chunk, TOKEN_COLUMN).item() for chunk in delta.chunks)
        if _is_over(row):
            delta.text += text.end()
        return delta


def _is_over(row: Row) -> bool:
    return row.payload is not None and row.exhausted(THINKER)


def _stop_strings(row: Row) -> Sequence[str]:
    stop = row.request.params.get("stop") if row.request is not None else None
    if isinstance(stop, str):
        return (stop,)
    return [str(string) for string in stop] if isinstance(stop, list | tuple) else ()


def _output(deltas: Sequence[_Delta]) -> StepOutput:
    """Text as bytes and tokens, one row per answer, padded with zeros to the longest."""
    texts = [delta.text.encode() for delta in deltas]
    columns: dict[str, Any] = {
        "text": _padded([np.frombuffer(text, np.uint8) for text in texts], np.uint8),
        "bytes": np.array([len(text) for text in texts], np.int32),
        "tokens": np.array([len(delta.chunks) for delta in deltas], np.int32),
    }
    for name in dict.fromkeys(name for delta in deltas for name in _columns(delta)):
        values = [[_value(chunk, name) for chunk in delta.chunks] for delta in deltas]
        first = next(value for row in values for value in row)
        stacked = [np.stack(row) if row else np.empty((0, *first.shape)) for row in values]
        columns[name] = _padded(stacked, first.dtype)
    return StepOutput(0, tuple(delta.row.key for delta in deltas), columns, modality="text")


def _columns(delta: _Delta) -> Columns:
    return delta.chunks[0].frame.columns if delta.chunks else {}


def _padded(rows: Sequence[np.ndarray[Any, Any]], dtype: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401
    longest = max(len(row) for row in rows)
    padded = np.zeros((len(rows), longest, *rows[0].shape[1:]), dtype)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return padded


def _value(chunk: Chunk, column: str) -> np.ndarray[Any, Any]:
    value: np.ndarray[Any, Any] = array_to_numpy(chunk.frame.columns[column])[chunk.index]
    return value


def _result(row: Row) -> Result | RequestError:
    data = row.payload.data if row.payload is not None else None
    if not isinstance(data, Mapping) or row.state.text is None:
        return RequestError(row.key, StageFailed("the thinker's result is no mapping"))
    stop: Tree = row.state.text.stop_string or data.get("stop_string")
    token_ids: Any = data["token_ids"]
    return Result(
        row.key,
        {
            "text": row.state.text.text,
            "token_ids": np.asarray(array_to_numpy(token_ids)).tolist(),
            "finish_reason": "stop" if row.state.text.stop_string else data["finish_reason"],
            "stop_reason": data.get("stop_token_id") if stop is None else stop,
            "usage": data["usage"],
            "logprobs": data.get("logprobs"),
        },
    )
