"""What the parrot's stages compute, a step at a time for many requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from examples.chat.answers import Plan, pitch_of, plan_of, refuse_failing
from examples.chat.routing import speaks
from omni_runtime.scheduler import RequestError, Result, StepOutput
from omni_runtime.simple_scheduler import failure_of
from omni_runtime.streaming_scheduler import StepResult, StreamingScheduler, StreamRow
from omni_wire.identity import RequestKey
from omni_wire.trees import to_numpy

SAMPLE_RATE = 24_000
WORD_SAMPLES = 960

Columns = dict[str, np.ndarray[Any, np.dtype[Any]]]


def make_writer(
    step_seconds: float = 0.0, max_rows: int = 64, gpu_id: int | None = None
) -> StreamingScheduler[Writing]:
    """Make the stage that writes words.

    Args:
        step_seconds: how long a step takes, whatever the number of rows.
        max_rows: most requests in one step.
        gpu_id: where it is placed, to try how GPUs are shared; it computes nothing there.
    """
    return StreamingScheduler(Writer(step_seconds), max_rows=max_rows)


def make_decode(max_rows: int = 64, gpu_id: int | None = None) -> StreamingScheduler[Telling]:
    """Make the terminal that shows words.

    Args:
        max_rows: most requests in one step.
        gpu_id: where it is placed; see `make_writer`.
    """
    return StreamingScheduler(Teller("text", _shown, _text_result), max_rows=max_rows)


def make_code2wav(max_rows: int = 64, gpu_id: int | None = None) -> StreamingScheduler[Telling]:
    """Make the terminal that speaks words.

    Args:
        max_rows: most requests in one step.
        gpu_id: where it is placed; see `make_writer`.
    """
    return StreamingScheduler(Teller("audio", _spoken, _audio_result), max_rows=max_rows)


@dataclass(slots=True)
class Writing:
    """The answer, once it is planned, and how much of it is written."""

    plan: Plan | None = None
    written: int = 0


@dataclass(slots=True)
class Telling:
    """What was told of one answer."""

    words: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Word:
    """One word to tell: the text, how high it is spoken in hertz, and its place in the answer."""

    text: str
    pitch: int
    place: int


class Writer:
    """One word per request and step."""

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
        """Write one word of every request; a finished one makes its result instead."""
        if self._step_seconds:
            time.sleep(self._step_seconds)
        writing: dict[str, list[tuple[RequestKey, str]]] = {"decode": [], "code2wav": []}
        finished, failed = [], []
        for row in rows:
            try:
                word = self._word(row)
            except Exception as error:  # a request's own failure must not fail its neighbours
                failed.append(RequestError(row.key, failure_of(error)))
                continue
            if word is None:
                finished.append(Result(row.key, _summary(row)))
                continue
            writing["decode"].append((row.key, word))
            if speaks(row.request):
                writing["code2wav"].append((row.key, word))
        outputs = tuple(_words(target, told) for target, told in writing.items() if told)
        return StepResult(outputs, tuple(finished), tuple(failed))

    def _word(self, row: StreamRow[Writing]) -> str | None:
        state = row.state
        if state.plan is None:
            assert row.request is not None, "a payload carries its request"
            state.plan = plan_of(row.request)
        if state.written == len(state.plan.words):
            return None
        word = state.plan.words[state.written]
        refuse_failing(word)
        state.written += 1
        return word


class Teller:
    """Passes on one word per request and step, as text or as a tone."""

    def __init__(
        self,
        modality: str,
        columns: Callable[[Sequence[Word]], Columns],
        result: Callable[[StreamRow[Telling]], dict[str, Any]],
    ) -> None:
        self._modality = modality
        self._columns = columns
        self._result = result

    def open(self, key: RequestKey) -> Telling:
        """Return the state of a new request."""
        return Telling()

    def ready(self, row: StreamRow[Telling]) -> bool:
        """A word has come, or all of them have and the payload too."""
        return bool(row.waiting("writer")) or (row.payload is not None and row.exhausted("writer"))

    def close(self, row: StreamRow[Telling]) -> None:
        """Nothing is held."""

    def step(self, rows: Sequence[StreamRow[Telling]]) -> StepResult:
        """Tell one word of every request that goes on; the others are finished."""
        going = [row for row in rows if row.waiting("writer")]
        ended = [row for row in rows if row not in going]
        outputs: tuple[StepOutput, ...] = ()
        if going:
            words = [_word_of(row) for row in going]
            keys = tuple(row.key for row in going)
            outputs = (StepOutput(0, keys, self._columns(words), None, self._modality),)
            for row, word in zip(going, words, strict=True):
                row.state.words.append(word.text)
        return StepResult(outputs, tuple(Result(row.key, self._result(row)) for row in ended))


def _summary(row: StreamRow[Writing]) -> dict[str, Any]:
    plan = row.state.plan
    assert plan is not None, "it is planned before it ends"
    usage = {"prompt_tokens": plan.prompt_tokens, "completion_tokens": len(plan.words)}
    return {"finish_reason": plan.reason, "usage": {**usage, "cached_tokens": 0}}


def _words(target: str, told: Sequence[tuple[RequestKey, str]]) -> StepOutput:
    words = [Word(text, 0, 0) for _, text in told]
    return StepOutput(0, tuple(key for key, _ in told), _shown(words), target)


def _shown(words: Sequence[Word]) -> Columns:
    texts = [np.frombuffer(word.text.encode(), np.uint8) for word in words]
    padded = np.zeros((len(texts), max(map(len, texts))), np.uint8)
    for row, text in zip(padded, texts, strict=True):
        row[: len(text)] = text
    return {
        "text": padded,
        "bytes": np.array([len(text) for text in texts], np.int32),
        "tokens": np.ones(len(texts), np.int32),
    }


def _spoken(words: Sequence[Word]) -> Columns:
    pitches = np.array([word.pitch + 7 * (word.place % 50) for word in words], np.float32)
    seconds = np.arange(WORD_SAMPLES, dtype=np.float32) / SAMPLE_RATE
    pcm = 0.5 * np.sin(2 * np.pi * pitches[:, None] * seconds)
    offsets = [WORD_SAMPLES * word.place for word in words]
    return {"pcm": pcm.astype(np.float32), "offset": np.array(offsets, np.int64)}


def _word_of(row: StreamRow[Telling]) -> Word:
    chunk = row.take("writer")
    columns = {name: np.asarray(to_numpy(value)) for name, value in chunk.frame.columns.items()}
    length = int(columns["bytes"][chunk.index])
    text = columns["text"][chunk.index][:length].tobytes().decode()
    return Word(text, pitch_of(row.request), len(row.state.words))


def _text_result(row: StreamRow[Telling]) -> dict[str, Any]:
    data = row.payload.data if row.payload is not None else None
    assert isinstance(data, dict), "the writer sends a summary"
    return {"text": "".join(row.state.words), **data, "stop_reason": None, "logprobs": None}


def _audio_result(row: StreamRow[Telling]) -> dict[str, Any]:
    samples = WORD_SAMPLES * len(row.state.words)
    return {"sample_rate": SAMPLE_RATE, "samples": samples, "finish_reason": "stop"}
