"""What the code2wav stage does in one step: one window of as many streams as share its length.

Streams wait until a window is full, or until the talker has ended. Of those that can go on, the
ones with their first window go first, because somebody is waiting for the first sound; later
windows only have to keep up with playback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import torch

from omni_models.qwen3_omni.code2wav.codec import Codec
from omni_models.qwen3_omni.code2wav.config import SAMPLE_RATE
from omni_models.qwen3_omni.code2wav.windows import AUDIO_DTYPES, AudioDtype, Delivery, Ramp
from omni_runtime.scheduler import RequestError, Result, StepOutput
from omni_runtime.streaming_scheduler import Chunk, StepResult, StreamRow
from omni_wire.arrays import array_to_numpy
from omni_wire.errors import ServiceError, StageFailed
from omni_wire.identity import RequestKey
from omni_wire.messages import Tree

TALKER = "talker_ar"
INT16_SCALE = 32767

Codes: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


@dataclass(slots=True, eq=False)
class Utterance:
    """One stream of frames.

    Attributes:
        opened: number of the stream, rising: older streams first.
        delivery: how the sound is wanted; None while the request is not known.
        slot: of the codec's memory; None until the first window.
        waiting: frames that have come, `[frames, groups]` each.
        buffered: frames in `waiting`.
        window: number of the next window.
        frames, samples: decoded so far.
        first_frames: frames of the first window.
        kept: all windows, where their codes are wanted back.
        failure: why the stream cannot go on.
    """

    opened: int
    delivery: Delivery | None = None
    slot: int | None = None
    waiting: list[Codes] = field(default_factory=list)
    buffered: int = 0
    window: int = 0
    frames: int = 0
    samples: int = 0
    first_frames: int = 0
    kept: list[Codes] = field(default_factory=list)
    failure: ServiceError | None = None

    @property
    def dtype(self) -> AudioDtype:
        """How samples are sent."""
        return AUDIO_DTYPES[0] if self.delivery is None else self.delivery.dtype

    def take(self, frames: int) -> Codes:
        """Remove and return the oldest `frames` frames, `[groups, frames]`."""
        joined = np.concatenate(self.waiting) if len(self.waiting) > 1 else self.waiting[0]
        self.waiting = [joined[frames:]] if frames < len(joined) else []
        self.buffered -= frames
        self.frames += frames
        self.window += 1
        self.first_frames = self.first_frames or frames
        codes = joined[:frames].T
        if self.delivery is not None and self.delivery.keeps_codes:
            self.kept.append(codes)
        return codes


Row: TypeAlias = "StreamRow[Utterance]"


class Code2WavProgram:
    """A `StreamProgram` over the frames of the talker.

    Args:
        codec: the vocoder with its weights.
        slots: streams that may be open at once; further ones wait for a slot.
        ramp: windows of a request that asks for none of its own.
        max_batch_size: most streams decoded together.
    """

    def __init__(self, codec: Codec, *, slots: int, ramp: Ramp, max_batch_size: int) -> None:
        self._codec = codec
        self._device = codec.code_embedding.weight.device
        self._states = codec.states(slots)
        self._free = list(range(slots))
        self._ramp = ramp
        self._max_batch_size = max_batch_size
        self._numbers = count()

    def open(self, key: RequestKey) -> Utterance:
        """Return the state of a new stream; it takes no slot before its first window."""
        return Utterance(next(self._numbers))

    def ready(self, row: Row) -> bool:
        """Return whether a window is full, or the talker has ended and something is left to do."""
        utterance = row.state
        try:
            self._absorb(row)
        except ServiceError as error:
            utterance.failure = error
            return True
        if utterance.buffered and (utterance.slot is not None or self._free):
            return bool(self._window(row))
        return self._is_over(row)

    def step(self, rows: Sequence[Row]) -> StepResult:
        """Decode one batch of windows, and end the streams that are over."""
        failed = [_failure(row, row.state.failure) for row in rows if row.state.failure]
        whole = [row for row in rows if row.state.failure is None]
        batch = self._batch([row for row in whole if row.state.buffered])
        outputs: tuple[StepOutput, ...] = ()
        if batch:
            try:
                outputs = self._decode(batch)
            except RuntimeError as error:  # of torch, such as memory that ran out
                failed += [_failure(row, error) for row in batch]
        lost = {error.key for error in failed}
        ended = [row for row in whole if self._is_over(row) and row.key not in lost]
        return StepResult(outputs, tuple(map(_result, ended)), tuple(failed))

    def close(self, row: Row) -> None:
        """Give the slot back."""
        if row.state.slot is not None:
            self._free.append(row.state.slot)

    def _absorb(self, row: Row) -> None:
        """Take in what has come, even if it does not fill a window yet."""
        utterance = row.state
        while row.waiting(TALKER):
            codes = self._codes(row.take(TALKER))
            utterance.waiting.append(codes)
            utterance.buffered += len(codes)
        if utterance.delivery is None and row.request is not None:
            utterance.delivery = Delivery.parse(row.request.params, self._ramp)

    def _codes(self, chunk: Chunk) -> Codes:
        """Return the frames of one row, `[frames, groups]`."""
        columns = chunk.frame.columns
        frames = int(array_to_numpy(columns["frames"])[chunk.index])
        codes: Codes = array_to_numpy(columns["codes"])[chunk.index][:frames].astype(np.int64)
        config = self._codec.config
        if codes.shape != (frames, config.groups):
            raise StageFailed(f"frames of shape {codes.shape}, not ({frames}, {config.groups})")
        if codes.size and not (codes.min() >= 0 and codes.max() < config.codebook_size):
            raise StageFailed(f"a code outside 0 to {config.codebook_size - 1}")
        return codes

    def _window(self, row: Row) -> int:
        """Frames of the next window; 0 while it must fill."""
        utterance = row.state
        ramp = self._ramp if utterance.delivery is None else utterance.delivery.ramp
        size = ramp.size(utterance.window)
        if utterance.buffered >= size:
            return size
        return utterance.buffered if row.exhausted(TALKER) else 0

    def _is_over(self, row: Row) -> bool:
        ended = row.exhausted(TALKER) and not row.state.buffered
        return ended and row.payload is not None

    def _batch(self, rows: Sequence[Row]) -> list[Row]:
        """Choose the windows to decode now: first ones, then those of the oldest stream."""
        if not rows:
            return []

        def kind(row: Row) -> tuple[bool, int]:
            return row.state.frames > 0, self._window(row)

        chosen = min(rows, key=lambda row: (row.state.frames > 0, row.state.opened))
        alike = [row for row in rows if kind(row) == kind(chosen)]
        room = len(self._free) if chosen.state.slot is None else len(alike)
        return alike[: min(room, self._max_batch_size)]

    def _decode(self, batch: Sequence[Row]) -> tuple[StepOutput, ...]:
        streams = [row.state for row in batch]
        before = [stream.frames for stream in streams]
        slots = [self._slot(stream) for stream in streams]
        size = self._window(batch[0])
        codes = torch.from_numpy(np.stack([stream.take(size) for stream in streams]))
        history = self._states.step(slots, before)
        sound = self._codec.decode(codes.to(self._device), history).float().cpu().numpy()
        outputs: list[StepOutput] = []
        for dtype in AUDIO_DTYPES:
            index = [number for number, stream in enumerate(streams) if stream.dtype == dtype]
            if index:
                outputs.append(_output([batch[number] for number in index], sound[index], dtype))
        for stream in streams:
            stream.samples += sound.shape[1]
        return tuple(outputs)

    def _slot(self, stream: Utterance) -> int:
        if stream.slot is None:
            stream.slot = self._free.pop()
        return stream.slot


def _output(rows: Sequence[Row], sound: np.ndarray[Any, Any], dtype: AudioDtype) -> StepOutput:
    pcm = sound if dtype == "float32" else np.rint(sound * INT16_SCALE).astype(np.int16)
    offsets = np.array([row.state.samples for row in rows])
    columns = {"pcm": pcm, "offset": offsets}
    return StepOutput(0, tuple(row.key for row in rows), columns, modality="audio")


def _result(row: Row) -> Result:
    data = row.payload.data if row.payload is not None else None
    said: Mapping[str, Tree] = data if isinstance(data, Mapping) else {}
    stream = row.state
    result: dict[str, Tree] = {
        "sample_rate": SAMPLE_RATE,
        "samples": stream.samples,
        "frames": stream.frames,
        "first_frames": stream.first_frames,
        "finish_reason": said.get("finish_reason"),
    }
    if "start_tokens" in said:
        result["start_tokens"] = said["start_tokens"]
    if stream.delivery is not None and stream.delivery.keeps_codes:
        nothing = np.zeros((0, 0), np.int64)
        result["codes"] = np.concatenate(stream.kept, 1) if stream.kept else nothing
    return Result(row.key, result)


def _failure(row: Row, error: Exception | None) -> RequestError:
    if isinstance(error, ServiceError):
        return RequestError(row.key, error)
    failure = StageFailed(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return RequestError(row.key, failure)
