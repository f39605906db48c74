"""Asks a pipeline one thing with the Python client; prints the words and keeps the speech.

python -m scripts.cluster.ask TARGET QUESTION WAV
"""

from __future__ import annotations

import sys
import wave
from pathlib import Path

from omni_client import OmniClient
from omni_client.sound import Audio

ANSWER_SECONDS = 120.0


def main() -> int:
    """Ask; returns the exit status."""
    target, question, path = sys.argv[1:]
    with OmniClient(target, timeout_seconds=ANSWER_SECONDS) as client:
        answer = client.chat(question, modalities=["text", "audio"])
    print(f"> {question}\n{answer.text}")
    if answer.audio is None:
        print("the pipeline answered without speech", file=sys.stderr)
        return 1
    _write(Path(path), answer.audio)
    print(f"{answer.audio.seconds:.2f} s of speech in {path}")
    return 0


def _write(path: Path, audio: Audio) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(audio.sample_rate)
        file.writeframes(audio.pcm16())


if __name__ == "__main__":
    sys.exit(main())
