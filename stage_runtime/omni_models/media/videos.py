"""Decoding videos: which frames to take, and those frames, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import av
import numpy as np

from omni_models.media.containers import opened
from omni_models.media.errors import InvalidMedia, MediaTooLarge
from omni_models.media.limits import Deadline, MediaLimits
from omni_models.media.pictures import Pixels

FRAME_FACTOR = 2
"""Frames come in pairs to the model."""
MIN_FRAMES = 4


@dataclass(frozen=True, slots=True)
class Sampling:
    """How densely frames are taken.

    Attributes:
        fps: frames per second of video.
        max_frames: most frames of one video.
    """

    fps: float = 2.0
    max_frames: int = 768


@dataclass(frozen=True, slots=True)
class VideoPlan:
    """What will be taken of a video.

    Attributes:
        width, height: of a frame.
        indices: numbers of the frames, in order of showing, an even count.
        fps: frames taken per second of video.
        has_sound: whether there is a sound track.
    """

    width: int
    height: int
    indices: tuple[int, ...]
    fps: float
    has_sound: bool


def plan_video(
    content: bytes, where: str, sampling: Sampling, limits: MediaLimits, deadline: Deadline
) -> VideoPlan:
    """Read a file's packets, without decoding them, and choose evenly spaced frames.

    Raises:
        InvalidMedia: no readable video, or one of less than two frames.
        MediaTooLarge: too long, or frames of too many pixels.
        MediaTimeout: reading passed the deadline.
    """
    try:
        with opened(content) as container:
            if not container.streams.video:
                raise InvalidMedia(f"{where}: there is no video in it", details={"field": where})
            stream = container.streams.video[0]
            has_sound = bool(container.streams.audio)
            width, height = stream.width, stream.height
            if width * height > limits.max_pixels:
                raise _too_large(f"{where}: frames of {width} x {height} pixels", where)
            rate = float(stream.average_rate or stream.guessed_rate or 0)
            times = sorted(_times(container, stream, where, deadline))
    except av.error.FFmpegError as error:
        raise _unreadable(where, error) from error
    total = len(times)
    if total < FRAME_FACTOR or not width or not height:
        raise InvalidMedia(f"{where}: the video has {total} frames", details={"field": where})
    if not rate:
        raise InvalidMedia(f"{where}: the video has no frame rate", details={"field": where})
    if total / rate > limits.max_seconds:
        raise _too_large(f"{where}: the video is longer than {limits.max_seconds:g} s", where)
    count = _frame_count(total, rate, sampling)
    indices = np.linspace(0, total - 1, count).round().astype(int)
    return VideoPlan(width, height, tuple(indices.tolist()), count / total * rate, has_sound)


def decode_frames(
    content: bytes, plan: VideoPlan, batch: int, where: str, deadline: Deadline
) -> Iterator[Pixels]:
    """Yield the planned frames as RGB `[frames, height, width, 3]`, `batch` or fewer at a time.

    A video that breaks off shows its last readable frame from there on.

    Raises:
        InvalidMedia: not a single frame can be decoded.
        MediaTimeout: decoding passed the deadline.
    """
    frames: list[Pixels] = []
    taken = 0
    try:
        for frame in _planned(content, plan, where, deadline):
            frames.append(frame)
            taken += 1
            if len(frames) == batch:
                yield np.stack(frames)
                frames = frames[:0]
            last = frame
    except av.error.FFmpegError as error:
        if not taken:
            raise _unreadable(where, error) from error
    if not taken:
        raise InvalidMedia(f"{where}: no frame can be decoded", details={"field": where})
    frames += [last] * (len(plan.indices) - taken)
    for begin in range(0, len(frames), batch):
        yield np.stack(frames[begin : begin + batch])


def _planned(content: bytes, plan: VideoPlan, where: str, deadline: Deadline) -> Iterator[Pixels]:
    wanted = {index: plan.indices.count(index) for index in plan.indices}
    with opened(content) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        for number, frame in enumerate(container.decode(stream)):
            deadline.left(where)
            if number in wanted:
                if (frame.width, frame.height) != (plan.width, plan.height):
                    frame = frame.reformat(plan.width, plan.height)
                pixels: Any = frame.to_ndarray(format="rgb24")
                for _ in range(wanted[number]):
                    yield pixels
            if number >= plan.indices[-1]:
                return


def _times(
    container: av.container.InputContainer,
    stream: av.video.stream.VideoStream,
    where: str,
    deadline: Deadline,
) -> Iterator[int]:
    for packet in container.demux(stream):
        deadline.left(where)
        if packet.pts is not None and packet.size:
            yield packet.pts


def _frame_count(total: int, rate: float, sampling: Sampling) -> int:
    most = min(sampling.max_frames, total) // FRAME_FACTOR * FRAME_FACTOR
    wanted = round(total / rate * sampling.fps)
    wanted = max(wanted, MIN_FRAMES) // FRAME_FACTOR * FRAME_FACTOR
    return max(FRAME_FACTOR, min(wanted, most))


def _unreadable(where: str, error: Exception) -> InvalidMedia:
    return InvalidMedia(f"{where}: not a readable video: {error}", details={"field": where})


def _too_large(problem: str, where: str) -> MediaTooLarge:
    return MediaTooLarge(f"{problem} are not accepted", details={"field": where})
