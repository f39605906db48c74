"""Speech in the encoding an application asked for.

`pcm16` and `float32` are bare samples, so pieces can be joined and played as they arrive. The
others are files: their bytes, joined in order, are one file. A wav file's length is not known while
it streams, so its header says "until the end", as players of streams expect.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import soundfile

from omni_gateway.chat.request import refused

Samples = npt.NDArray[np.float32]

FULL_SCALE = 32767
UNKNOWN_LENGTH = 0xFFFFFFFF
MIME_TYPES: Mapping[str, str] = {
    "pcm16": "audio/L16",
    "float32": "application/octet-stream",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
}
"""Encodings that are served, with the media type of each."""

_ALIASES = {"": "pcm16", "pcm": "pcm16", "ogg": "opus"}
_FILES: Mapping[str, tuple[str, str]] = {
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "opus": ("OGG", "OPUS"),
    "flac": ("FLAC", "PCM_16"),
}


class AudioEncoder:
    """Encodes one stream of speech.

    Args:
        encoding: one of `MIME_TYPES`, `pcm` for `pcm16`, or empty for the default.
        sample_rate: in hertz.
        field: name of the request's field, for the refusal.

    Raises:
        InvalidRequest: the encoding is not served.
    """

    def __init__(self, encoding: str, sample_rate: int, field: str = "audio.encoding") -> None:
        self.encoding = _ALIASES.get(encoding, encoding)
        if self.encoding not in MIME_TYPES:
            raise refused(field, f"must be one of {', '.join(MIME_TYPES)}, got '{encoding}'")
        if self.is_file and not sample_rate:
            raise refused(field, f"is '{encoding}', and this pipeline does not speak")
        self.sample_rate = sample_rate
        self.samples = 0
        self._file = _SoundFile(*_FILES[self.encoding], sample_rate) if self.is_file else None

    @property
    def is_file(self) -> bool:
        """Whether a library writes the bytes, which then lag behind the samples."""
        return self.encoding in _FILES

    def encode(self, samples: Samples) -> bytes:
        """Return the bytes that the next samples add."""
        first = self.samples == 0
        self.samples += len(samples)
        if self._file is not None:
            return self._file.write(samples)
        if self.encoding == "float32":
            return samples.astype("<f4", copy=False).tobytes()
        header = wav_header(self.sample_rate) if self.encoding == "wav" and first else b""
        return header + pcm16(samples)

    def whole(self, samples: Samples) -> bytes:
        """Return complete speech instead of pieces: files know their length."""
        if self._file is not None:
            return self._file.whole(samples)
        if self.encoding == "wav":
            return wav_header(self.sample_rate, len(samples)) + pcm16(samples)
        return self.encode(samples)

    def finish(self) -> bytes:
        """Return the bytes that end the stream; a wav without any sample is still a wav."""
        if self._file is not None:
            return self._file.close()
        if self.encoding == "wav" and self.samples == 0:
            return wav_header(self.sample_rate, 0)
        return b""


def pcm16(samples: Samples) -> bytes:
    """Return little-endian 16-bit samples, clipped to full scale."""
    scaled = np.clip(samples, -1.0, 1.0) * FULL_SCALE
    return np.rint(scaled).astype("<i2").tobytes()


def wav_header(sample_rate: int, samples: int | None = None) -> bytes:
    """Return the header of a 16-bit wav file of one channel; null for a length not known yet."""
    size = UNKNOWN_LENGTH if samples is None else 2 * samples
    whole = UNKNOWN_LENGTH if samples is None else 36 + size
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", whole, b"WAVE", b"fmt ", 16, 1, 1),
        *(sample_rate, 2 * sample_rate, 2, 16, b"data", size),
    )


class _Memory(io.BytesIO):
    """Memory that stays open: of an answer that nobody reads to its end, the garbage collector may
    take this before the writer, which still writes its end.
    """

    def close(self) -> None:
        """Do nothing; the memory goes with its last reference."""


class _SoundFile:
    """A file format written by libsndfile into memory, drained as it grows."""

    def __init__(self, container: str, subtype: str, sample_rate: int) -> None:
        self._buffer = _Memory()
        self._drained = 0
        self._writer = soundfile.SoundFile(
            self._buffer, "w", samplerate=sample_rate, channels=1, format=container, subtype=subtype
        )
        self._close: Callable[[], None] = self._writer.close

    def write(self, samples: Samples) -> bytes:
        self._writer.write(samples)
        return self._drain()

    def whole(self, samples: Samples) -> bytes:
        self._writer.write(samples)
        self._close()
        return self._buffer.getvalue()

    def close(self) -> bytes:
        self._close()
        return self._drain()

    def _drain(self) -> bytes:
        data = self._buffer.getbuffer()[self._drained :].tobytes()
        self._drained += len(data)
        return data
