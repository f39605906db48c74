"""Decoders give exact samples and pixels, or say what is wrong; nothing they read is trusted."""

from __future__ import annotations

import io
import zlib
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from omni_models.media.limits import Deadline, MediaLimits
from omni_models.media.pictures import Pixels, decode_picture
from omni_models.media.sounds import SHORTEST_SAMPLES, Samples, decode_sound
from omni_models.media.videos import Sampling, VideoPlan, decode_frames, plan_video
from omni_wire.errors import ServiceError
from tests.support import media

LIMITS = MediaLimits(max_pixels=1 << 20, max_seconds=600)


def picture(content: bytes) -> Pixels:
    return decode_picture(content, "part", LIMITS)


def sound(content: bytes, limits: MediaLimits = LIMITS) -> Samples:
    return decode_sound(content, 16000, "part", limits, Deadline(60))


def video(content: bytes, sampling: Sampling | None = None) -> tuple[VideoPlan, Pixels]:
    plan = plan_video(content, "part", sampling or Sampling(), LIMITS, Deadline(60))
    frames = decode_frames(content, plan, 3, "part", Deadline(60))
    return plan, np.concatenate(list(frames))


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def test_pictures_come_upright_and_on_white() -> None:
    pixels = media.picture(8, 4)
    assert np.array_equal(picture(media.png(pixels)), pixels)
    rotated = Image.fromarray(pixels)
    exif = rotated.getexif()
    exif[0x0112] = 6
    assert picture(encoded(rotated, "PNG", exif=exif)).shape == (8, 4, 3)
    clear = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert (picture(encoded(clear, "PNG")) == 255).all()
    for mode in ("L", "P", "1", "LA", "CMYK"):
        kind = "JPEG" if mode == "CMYK" else "PNG"
        assert picture(encoded(Image.new(mode, (4, 4)), kind)).shape == (4, 4, 3)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "INVALID_MEDIA", id="empty"),
        pytest.param(b"%!PS-Adobe-3.0 EPSF-3.0", "INVALID_MEDIA", id="a format with programs"),
        pytest.param(media.png(media.picture())[:-40], "INVALID_MEDIA", id="broken off"),
        pytest.param(media.png(np.zeros((1025, 1025, 3), np.uint8)), "MEDIA_TOO_LARGE", id="large"),
        pytest.param(media.png(np.zeros((1, 300, 3), np.uint8)), "INVALID_MEDIA", id="a strip"),
    ],
)
def test_pictures_that_cannot_be_seen_are_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ServiceError, match=r"^part: ") as refusal:
        picture(content)
    assert refusal.value.reason == reason


def test_a_picture_bomb_is_refused_before_it_unfolds() -> None:
    header = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", _size(60000, 60000) + b"\x08\x02\x00\x00\x00")
    bomb = header + _chunk(b"IDAT", zlib.compress(b"\0" * (1 << 20))) + _chunk(b"IEND", b"")
    assert len(bomb) < 3000
    with pytest.raises(ServiceError) as refusal:
        picture(bomb)
    assert refusal.value.reason == "MEDIA_TOO_LARGE"


def _size(width: int, height: int) -> bytes:
    return width.to_bytes(4, "big") + height.to_bytes(4, "big")


def _chunk(name: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + name + body + zlib.crc32(name + body).to_bytes(4, "big")


def test_sound_of_the_right_rate_is_exact() -> None:
    samples = media.sound(0.5)
    assert np.array_equal(sound(media.wav(samples)), samples)


def test_sound_of_another_rate_and_of_two_channels_is_mixed_and_resampled() -> None:
    t = np.arange(48000) / 48000
    both = np.stack([np.sin(2 * np.pi * 440 * t), np.zeros_like(t)], -1).astype(np.float32) / 2
    content = io.BytesIO()
    with av.open(content, "w", format="wav") as container:
        stream: Any = container.add_stream("pcm_f32le", rate=48000, layout="stereo")
        frame = av.AudioFrame.from_ndarray(both.reshape(1, -1), format="flt", layout="stereo")
        frame.sample_rate = 48000
        for packet in (*stream.encode(frame), *stream.encode()):
            container.mux(packet)
    expected = np.sin(2 * np.pi * 440 * np.arange(16000) / 16000) / 4
    got = sound(content.getvalue())
    assert got.shape == (16000,)
    assert np.abs(got - expected)[200:-200].max() < 1e-3


def test_a_file_that_breaks_off_counts_up_to_there() -> None:
    whole = media.mp3(media.sound(2.0))
    half = sound(whole[: len(whole) // 2])
    assert 14000 < len(half) < 18000


def test_a_very_short_sound_is_filled_up_with_silence() -> None:
    got = sound(media.wav(media.sound(0.001)))
    assert len(got) == SHORTEST_SAMPLES
    assert not got[16:].any()


def test_a_sound_may_be_long_but_not_too_long() -> None:
    ten_minutes = media.wav(np.zeros(600 * 8000, np.float32), rate=8000)
    assert len(sound(ten_minutes)) == 600 * 16000
    with pytest.raises(ServiceError) as refusal:
        sound(ten_minutes, MediaLimits(max_seconds=599))
    assert refusal.value.reason == "MEDIA_TOO_LARGE"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(media.wav(media.sound())[:44], id="no samples"),
        pytest.param(media.mp3(media.sound())[:60], id="less than a frame"),
        pytest.param(media.png(media.picture()), id="a picture"),
        pytest.param(media.mkv(media.video()), id="a video without sound"),
        pytest.param(b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/x.ts\n", id="a playlist"),
        pytest.param(b"ffconcat version 1.0\nfile '/etc/passwd'\n", id="a list of files"),
    ],
)
def test_what_is_no_sound_is_refused(content: bytes) -> None:
    with pytest.raises(ServiceError, match=r"^part: ") as refusal:
        sound(content)
    assert refusal.value.reason == "INVALID_MEDIA"


@pytest.mark.parametrize(
    ("frames", "fps", "sampling", "indices", "taken_fps"),
    [
        (4, 2, Sampling(2.0), (0, 1, 2, 3), 2.0),
        (24, 8, Sampling(2.0), (0, 5, 9, 14, 18, 23), 2.0),
        (24, 8, Sampling(2.0, max_frames=4), (0, 8, 15, 23), 4 / 3),
        (5, 1, Sampling(0.1), (0, 1, 3, 4), 0.8),
        (3, 1, Sampling(2.0), (0, 2), 2 / 3),
    ],
)
def test_frames_are_spread_evenly_from_first_to_last(
    frames: int, fps: int, sampling: Sampling, indices: tuple[int, ...], taken_fps: float
) -> None:
    shown = media.video(frames, 32, 32)
    plan, pixels = video(media.mkv(shown, fps), sampling)
    assert plan.indices == indices
    assert plan.fps == pytest.approx(taken_fps)
    assert np.array_equal(pixels, shown[list(indices)])


def test_a_video_that_breaks_off_shows_its_last_frame_from_there_on() -> None:
    shown = media.video(8)
    content = media.mkv(shown)
    plan = plan_video(content, "part", Sampling(), LIMITS, Deadline(60))
    half = content[: len(content) * 2 // 3]
    frames = np.concatenate(list(decode_frames(half, plan, 4, "part", Deadline(60))))
    assert len(frames) == 8
    assert np.array_equal(frames[0], shown[0])
    assert np.array_equal(frames[-1], frames[-2])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "INVALID_MEDIA", id="empty"),
        pytest.param(media.wav(media.sound()), "INVALID_MEDIA", id="a sound"),
        pytest.param(media.mkv(media.video(1)), "INVALID_MEDIA", id="one frame"),
        pytest.param(
            media.mkv(np.zeros((2, 1040, 1040, 3), np.uint8)), "MEDIA_TOO_LARGE", id="large frames"
        ),
    ],
)
def test_videos_that_cannot_be_seen_are_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ServiceError, match=r"^part: ") as refusal:
        video(content)
    assert refusal.value.reason == reason
