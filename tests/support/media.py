"""Small deterministic pictures, sounds and videos, and their encodings without loss."""

from __future__ import annotations

import base64
import io
import wave
from typing import Any, TypeAlias

import av
import numpy as np
from PIL import Image

Pixels: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
Samples: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"

SAMPLE_RATE = 16_000


def picture(width: int = 96, height: int = 64, shift: int = 0) -> Pixels:
    """Return an RGB picture `[height, width, 3]` of smooth and busy parts."""
    y, x = np.mgrid[0:height, 0:width]
    red, green = (x + shift) * 255 // width % 256, y * 255 // height
    return np.stack([red, green, ((x ^ y) * 4 + shift) % 256], -1).astype(np.uint8)


def sound(seconds: float = 1.0, hertz: float = 220.0) -> Samples:
    """Return a rising tone, 16 kHz, exactly representable in 16 bits."""
    t = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    tone = 0.3 * np.sin(2 * np.pi * (hertz + 2 * hertz * t) * t)
    return (np.round(tone * 32767).astype(np.int16) / 32768).astype(np.float32)


def video(frames: int = 4, width: int = 96, height: int = 64) -> Pixels:
    """Return RGB frames `[frames, height, width, 3]`."""
    return np.stack([picture(width, height, 8 * number) for number in range(frames)])


def png(pixels: Pixels) -> bytes:
    """Encode a picture."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def wav(samples: Samples, rate: int = SAMPLE_RATE) -> bytes:
    """Encode a sound as 16-bit mono."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.round(samples * 32768).astype("<i2").tobytes())
    return buffer.getvalue()


def mp3(samples: Samples, rate: int = SAMPLE_RATE) -> bytes:
    """Encode a sound as mono mp3, which is not exact."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp3") as container:
        stream: Any = container.add_stream("mp3", rate=rate, layout="mono")
        values = np.round(samples * 32767).astype(np.int16)[None]
        frame = av.AudioFrame.from_ndarray(values, format="s16", layout="mono")
        frame.sample_rate = rate
        for packet in (*stream.encode(frame), *stream.encode()):
            container.mux(packet)
    return buffer.getvalue()


def mkv(frames: Pixels, fps: int = 2, track: Samples | None = None) -> bytes:
    """Encode a video without loss, with a 16 kHz sound track where one is given."""
    buffer = io.BytesIO()
    # Without this the file carries random numbers, and equal videos differ.
    options = {"fflags": "bitexact"}
    with av.open(buffer, "w", format="matroska", container_options=options) as container:
        pictures: Any = container.add_stream("ffv1", rate=fps)
        pictures.width, pictures.height = frames.shape[2], frames.shape[1]
        pictures.pix_fmt = "bgr0"
        sounds: Any = None
        if track is not None:
            sounds = container.add_stream("pcm_s16le", rate=SAMPLE_RATE, layout="mono")
        for pixels in frames:
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            container.mux(pictures.encode(frame))
        container.mux(pictures.encode())
        if sounds is not None and track is not None:
            values = np.round(track * 32768).astype(np.int16)[None]
            samples = av.AudioFrame.from_ndarray(values, format="s16", layout="mono")
            samples.sample_rate = SAMPLE_RATE
            container.mux(sounds.encode(samples))
            container.mux(sounds.encode())
    return buffer.getvalue()


def data_url(mime: str, content: bytes) -> str:
    """Return a data URL with base64 content."""
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"
