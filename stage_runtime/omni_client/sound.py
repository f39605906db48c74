"""Speech as an application holds it: samples, their rate, and a wav file when one is wanted."""

from __future__ import annotations

import io
import wave
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

_FULL_SCALE = 32767


@dataclass(frozen=True, eq=False)
class Audio:
    """Sound.

    Attributes:
        samples: float32 in [-1, 1]; `[n]` for one channel, `[n, channels]` for several.
        sample_rate: in hertz.
    """

    samples: npt.NDArray[np.float32]
    sample_rate: int

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return len(self.samples) / self.sample_rate if self.sample_rate else 0.0

    def pcm16(self) -> bytes:
        """Return little-endian 16-bit samples, clipped to full scale."""
        scaled = np.clip(self.samples, -1.0, 1.0) * _FULL_SCALE
        return np.rint(scaled).astype("<i2").tobytes()

    def to_wav(self, file: str | PathLike[str] | BinaryIO | None = None) -> bytes:
        """Return a 16-bit wav file, and write it when a path or file is given."""
        buffer = io.BytesIO()
        with wave.open(buffer, "wb") as out:
            out.setnchannels(1 if self.samples.ndim == 1 else self.samples.shape[1])
            out.setsampwidth(2)
            out.setframerate(self.sample_rate)
            out.writeframes(self.pcm16())
        data = buffer.getvalue()
        if isinstance(file, (str, PathLike)):
            Path(file).write_bytes(data)
        elif file is not None:
            file.write(data)
        return data


def samples_of(data: bytes, encoding: str, channels: int) -> npt.NDArray[np.float32]:
    """Return raw audio of the wire as float32 samples.

    Raises:
        ValueError: the encoding is a file format, whose bytes are not samples.
    """
    if encoding == "float32":
        flat = np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)
    elif encoding in ("pcm16", ""):
        flat = np.frombuffer(data, dtype="<i2").astype(np.float32) / np.float32(_FULL_SCALE)
    else:
        raise ValueError(f"{encoding} is a file format; only pcm16 and float32 are samples")
    return flat if channels <= 1 else flat.reshape(-1, channels)
