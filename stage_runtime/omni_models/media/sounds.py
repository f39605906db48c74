"""Decoding sounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import av
import numpy as np
import soxr

from omni_models.media.containers import opened
from omni_models.media.errors import InvalidMedia, MediaTooLarge
from omni_models.media.limits import Deadline, MediaLimits

Samples: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"

SHORTEST_SAMPLES = 400
"""Shorter sounds are filled up with silence: a spectrum needs that much."""


def decode_sound(
    content: bytes, rate: int, where: str, limits: MediaLimits, deadline: Deadline
) -> Samples:
    """Return the first sound track of a file, mixed to mono, at `rate` samples per second.

    A file that breaks off counts up to there.

    Raises:
        InvalidMedia: there is no sound in it that can be read.
        MediaTooLarge: it is too long.
        MediaTimeout: decoding passed the deadline.
    """
    try:
        with opened(content) as container:
            if not container.streams.audio:
                raise InvalidMedia(f"{where}: there is no sound in it", details={"field": where})
            source_rate, pieces = _decoded(container, where, limits, deadline)
    except av.error.FFmpegError as error:
        raise InvalidMedia(
            f"{where}: not a readable sound: {error}", details={"field": where}
        ) from error
    samples = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
    if not len(samples):
        raise InvalidMedia(f"{where}: the sound is empty", details={"field": where})
    if source_rate != rate:
        samples = soxr.resample(samples, source_rate, rate)
    missing = SHORTEST_SAMPLES - len(samples)
    return np.pad(samples, (0, missing)) if missing > 0 else samples


def _decoded(
    container: av.container.InputContainer, where: str, limits: MediaLimits, deadline: Deadline
) -> tuple[int, list[Samples]]:
    stream = container.streams.audio[0]
    rate = stream.rate
    if not rate:
        raise InvalidMedia(f"{where}: the sound has no sample rate", details={"field": where})
    resampler = av.AudioResampler(format="fltp", layout=stream.layout, rate=rate)
    pieces: list[Samples] = []
    count = 0
    for frame in _frames(container, stream):
        deadline.left(where)
        for planar in resampler.resample(frame):
            pieces.append(planar.to_ndarray().mean(0, dtype=np.float32))
            count += len(pieces[-1])
        if count > limits.max_seconds * rate:
            raise MediaTooLarge(
                f"{where}: the sound is longer than {limits.max_seconds:g} s",
                details={"field": where},
            )
    return rate, pieces


def _frames(
    container: av.container.InputContainer, stream: av.audio.stream.AudioStream
) -> Iterator[av.AudioFrame]:
    started = False
    try:
        for frame in container.decode(stream):
            started = True
            yield frame
    except av.error.InvalidDataError:
        # The end of a file that breaks off; one that never began is an error.
        if not started:
            raise
