"""Shows a pipeline a picture, plays it a sound and asks about them; prints words, keeps speech.

python -m scripts.cluster.ask sdk HOST:PORT QUESTION WAV
python -m scripts.cluster.ask openai URL QUESTION WAV
"""

from __future__ import annotations

import base64
import io
import struct
import sys
import wave
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from omni_client import OmniClient, Sampling, Voice, audio, image

ANSWER_SECONDS = 300.0
MOST_TOKENS = 32
SEED = 7
SAMPLE_RATE = 16_000


def main() -> int:
    """Ask; returns the exit status."""
    kind, target, question, path = sys.argv[1:]
    words, speech = CLIENTS[kind](target, question)
    print(f"> {question}\n{words}")
    if not speech:
        print("the pipeline answered without speech", file=sys.stderr)
        return 1
    Path(path).write_bytes(speech)
    with wave.open(path) as file:
        print(f"{file.getnframes() / file.getframerate():.2f} s of speech in {path}")
    return 0


def ask_by_sdk(target: str, question: str) -> tuple[str, bytes]:
    """Return words and a wav file, from the gRPC API."""
    with OmniClient(target, timeout_seconds=ANSWER_SECONDS) as client:
        answer = client.chat(
            [question, image(_picture()), audio(_sound())],
            modalities=["text", "audio"],
            sampling=Sampling(max_tokens=MOST_TOKENS, seed=SEED),
            voice=Voice("Ethan", max_frames=MOST_TOKENS),
        )
    return answer.text, b"" if answer.audio is None else answer.audio.to_wav()


def ask_by_openai(url: str, question: str) -> tuple[str, bytes]:
    """Return words and a wav file, from the HTTP API, by OpenAI's own client."""
    from openai import OpenAI

    sound = base64.b64encode(_sound()).decode()
    picture = "data:image/png;base64," + base64.b64encode(_picture()).decode()
    content: Any = [
        {"type": "text", "text": question},
        {"type": "image_url", "image_url": {"url": picture}},
        {"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}},
    ]
    with OpenAI(base_url=url, api_key="none", timeout=ANSWER_SECONDS) as client:
        answer = client.chat.completions.create(
            model=client.models.list().data[0].id,
            messages=[{"role": "user", "content": content}],
            modalities=["text", "audio"],
            audio={"voice": "Ethan", "format": "wav"},
            max_completion_tokens=MOST_TOKENS,
            seed=SEED,
            extra_body={"talker_max_new_tokens": MOST_TOKENS},
        )
    message = answer.choices[0].message
    speech = b"" if message.audio is None else base64.b64decode(message.audio.data)
    return message.content or "", speech


CLIENTS: Mapping[str, Callable[[str, str], tuple[str, bytes]]] = {
    "sdk": ask_by_sdk,
    "openai": ask_by_openai,
}


def _picture() -> bytes:
    """A red square on white as PNG, written by hand: the set-up has no library for pictures."""
    pixels = np.full((160, 224, 3), 255, np.uint8)
    pixels[30:130, 40:140] = (220, 20, 60)
    height, width, _ = pixels.shape
    rows = np.concatenate((np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)), axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def _sound() -> bytes:
    seconds = np.arange(SAMPLE_RATE, dtype=np.float32) / SAMPLE_RATE
    samples = np.rint(12_000 * np.sin(2 * np.pi * 440 * seconds)).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(SAMPLE_RATE)
        out.writeframes(samples.tobytes())
    return file.getvalue()


if __name__ == "__main__":
    sys.exit(main())
