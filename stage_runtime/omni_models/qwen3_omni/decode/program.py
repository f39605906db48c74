"""What the decode stage does in one step: the text of whatever tokens have come.

Answers share a frame as long as they are text. What only some of them have, calls of tools and
log-probabilities, travels in the meta tree of a frame of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np

from omni_models.qwen3_omni.decode.text import GrowingText
from omni_models.qwen3_omni.decode.vocabulary import Vocabulary
from omni_models.qwen3_omni.token_logprobs import logprob_at
from omni_models.structured.tool_calls import CallDelta, ToolCallReader, ToolParsers
from omni_models.structured.wishes import Tool, structure_of
from omni_runtime.scheduler import RequestError, Result, StepOutput
from omni_runtime.sglang_bridge.sampling import TokenLogprob
from omni_runtime.streaming_scheduler import Chunk, StepResult, StreamRow
from omni_wire.arrays import array_to_numpy
from omni_wire.errors import StageFailed
from omni_wire.identity import RequestKey
from omni_wire.messages import Tree

THINKER = "thinker"
TOKEN_COLUMN = "token_id"


@dataclass(slots=True, eq=False)
class Answer:
    """One answer.

    Attributes:
        text: as the tokens spell it; None before the first step.
        tools: what it may call; None before anybody said.
        reader: takes it apart into text and calls; None where nothing can be called.
        content: what of it is no call, and was shown.
    """

    text: GrowingText | None = None
    tools: Sequence[Tool] | None = None
    reader: ToolCallReader | None = None
    content: str = ""


@dataclass(slots=True)
class _Delta:
    """What one step adds to one answer."""

    row: Row
    text: str = ""
    chunks: list[Chunk] = field(default_factory=list)
    calls: list[CallDelta] = field(default_factory=list)
    logprobs: list[Tree] = field(default_factory=list)

    @property
    def plain(self) -> bool:
        return not (self.calls or self.logprobs)


Row: TypeAlias = "StreamRow[Answer]"


class DecodeProgram:
    """A `StreamProgram` over the tokens of the thinker.

    Args:
        parsers: find calls of tools; None where the pipeline serves none.
    """

    def __init__(self, vocabulary: Vocabulary, parsers: ToolParsers | None = None) -> None:
        self._vocabulary = vocabulary
        self._parsers = parsers

    def open(self, key: RequestKey) -> Answer:
        """Return the state of a new answer."""
        return Answer()

    def ready(self, row: Row) -> bool:
        """Return whether tokens have come, or the thinker has ended and its payload is here."""
        if not (row.waiting(THINKER) or _is_over(row)):
            return False
        return self._parsers is None or not _tools(row) or self._parsers.ready()

    def step(self, rows: Sequence[Row]) -> StepResult:
        """Turn all waiting tokens into text and calls; end the answers that are over."""
        deltas = [self._delta(row) for row in rows]
        shown = [delta for delta in deltas if delta.chunks or delta.text or delta.calls]
        plain = [delta for delta in shown if delta.plain]
        outputs = [_output(plain)] if plain else []
        outputs += [_output([delta]) for delta in shown if not delta.plain]
        ended = [row for row in rows if _is_over(row)]
        results = [_result(row) for row in ended]
        return StepResult(
            tuple(outputs),
            tuple(result for result in results if isinstance(result, Result)),
            tuple(result for result in results if isinstance(result, RequestError)),
        )

    def close(self, row: Row) -> None:
        """Nothing is held outside the row."""

    def _delta(self, row: Row) -> _Delta:
        state = row.state
        text = self._begun(row)
        delta = _Delta(row)
        while row.waiting(THINKER):
            delta.chunks.append(row.take(THINKER))
        delta.text = text.add(_value(chunk, TOKEN_COLUMN).item() for chunk in delta.chunks)
        if _is_over(row):
            delta.text += text.end()
        if state.reader is not None:
            delta.text, delta.calls = state.reader.add(delta.text)
            if _is_over(row):
                rest, calls = state.reader.end()
                delta.text += rest
                delta.calls += calls
        state.content += delta.text
        delta.logprobs = [
            self._logprob(chunk, found)
            for chunk in delta.chunks
            if (found := logprob_at(_columns(chunk), chunk.index)) is not None
        ]
        return delta

    def _begun(self, row: Row) -> GrowingText:
        if row.state.text is None:
            row.state.text = GrowingText(self._vocabulary, _stop_strings(row))
            if self._parsers is not None and (tools := _tools(row)):
                row.state.reader = self._parsers.reader(tools)
        return row.state.text

    def _logprob(self, chunk: Chunk, found: TokenLogprob) -> Tree:
        token = int(_value(chunk, TOKEN_COLUMN).item())
        top = [self._token(other, logprob) for other, logprob in found.top]
        return {**self._token(token, found.logprob), "top": top}

    def _token(self, token: int, logprob: float) -> dict[str, Tree]:
        spelled = self._vocabulary.pieces.get(token, b"")
        return {"token_id": token, "bytes": spelled, "logprob": logprob}


def _is_over(row: Row) -> bool:
    return row.payload is not None and row.exhausted(THINKER)


def _tools(row: Row) -> Sequence[Tool]:
    """Return what the answer may call."""
    if row.state.tools is None and row.request is not None:
        row.state.tools = structure_of(row.request.params).callable
    return row.state.tools or ()


def _stop_strings(row: Row) -> Sequence[str]:
    stop = row.request.params.get("stop") if row.request is not None else None
    if isinstance(stop, str):
        return (stop,)
    return [str(string) for string in stop] if isinstance(stop, list | tuple) else ()


def _output(deltas: Sequence[_Delta]) -> StepOutput:
    """Text as bytes and tokens, one row per answer, padded with zeros to the longest."""
    texts = [delta.text.encode() for delta in deltas]
    tokens = [[_value(chunk, TOKEN_COLUMN) for chunk in delta.chunks] for delta in deltas]
    columns = {
        "text": _padded([np.frombuffer(text, np.uint8) for text in texts], np.uint8),
        "bytes": np.array([len(text) for text in texts], np.int32),
        "tokens": np.array([len(delta.chunks) for delta in deltas], np.int32),
        TOKEN_COLUMN: _padded([np.array(row, np.int64) for row in tokens], np.int64),
    }
    keys = tuple(delta.row.key for delta in deltas)
    meta = _meta(deltas[0]) if len(deltas) == 1 else None
    return StepOutput(0, keys, columns, modality="text", meta=meta)


def _meta(delta: _Delta) -> Tree:
    if delta.plain:
        return None
    calls: list[Tree] = [asdict(call) for call in delta.calls]
    return {"tool_calls": calls, "logprobs": delta.logprobs}


def _columns(chunk: Chunk) -> Mapping[str, Any]:
    return {name: array_to_numpy(values) for name, values in chunk.frame.columns.items()}


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
    answered, reader = data["finish_reason"], row.state.reader
    if reader is not None and reader.called and answered == "stop":
        answered = "tool_calls"
    stop: Tree = row.state.text.stop_string or data.get("stop_string")
    token_ids: Any = data["token_ids"]
    return Result(
        row.key,
        {
            "text": row.state.content,
            "token_ids": np.asarray(array_to_numpy(token_ids)).tolist(),
            "finish_reason": "stop" if row.state.text.stop_string else answered,
            "stop_reason": data.get("stop_token_id") if stop is None else stop,
            "usage": data["usage"],
        },
    )
