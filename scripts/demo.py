"""The whole of Qwen3-Omni on this machine's CPU, with a tiny random checkpoint, in one command.

Starts the speech pipeline, shows it a picture, plays it a sound, and leaves behind what came back:
the text, the speech, and a picture of what each stage did when. The answer is meaningless, as the
weights are random; everything that leads to it is what a real checkpoint goes through.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from omni_cli.chat_answer import ChatAnswer, ChatProgress
from omni_client import OmniClient
from omni_models.qwen3_omni.tiny import write_tiny_checkpoint
from omni_wire.messages import Tree
from scripts.timeline_picture import draw_timeline

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "demo"
CONFIG = ROOT / "examples" / "qwen3-omni-cpu.yaml"
PORT = 8765
START_SECONDS = 600
ANSWER_SECONDS = 120
QUESTION = "What do you see in the picture, and what do you hear?"
TOKENS = 32


def main() -> int:
    """Run the demonstration and return its exit status."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    checkpoint, picture, sound = FOLDER / "tiny", FOLDER / "picture.png", FOLDER / "sound.wav"
    print(f"checkpoint: {checkpoint} (tiny, random)")
    write_tiny_checkpoint(checkpoint)
    _write_picture(picture)
    _write_sound(sound)
    target = f"127.0.0.1:{PORT}"
    with _pipeline(checkpoint), OmniClient(target, timeout_seconds=ANSWER_SECONDS) as client:
        print(f"\n> {QUESTION}  [{picture.name}, {sound.name}]\n")
        answer = _ask(client, picture, sound)
    _leave_behind(answer)
    return 0


@contextmanager
def _pipeline(checkpoint: Path) -> Iterator[None]:
    """The speech pipeline, ready; its log goes to a file."""
    omni = Path(sys.executable).with_name("omni")
    command = [str(omni), "up", "--config", str(CONFIG), "--model-path", str(checkpoint)]
    log = FOLDER / "up.log"
    print(f"starting the pipeline: omni {' '.join(command[1:])}\n(log: {log})")
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port", str(PORT), "--http-port", "0"],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_until_ready(process, log, began)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path, began: float) -> None:
    while time.monotonic() - began < START_SECONDS:
        if b"ready in " in log.read_bytes():
            print(f"ready after {time.monotonic() - began:.0f} s, warmed up over every route")
            return
        if process.poll() is not None:
            break
        time.sleep(0.5)
    lines = log.read_text(errors="replace").splitlines()[-20:]
    raise SystemExit("the pipeline did not start:\n" + "\n".join(lines))


def _ask(client: OmniClient, picture: Path, sound: Path) -> ChatAnswer:
    inputs: dict[str, Tree] = {
        "messages": [{"role": "user", "content": QUESTION}],
        "images": [picture.read_bytes()],
        "audios": [sound.read_bytes()],
    }
    params: dict[str, Tree] = {"max_tokens": TOKENS, "talker_max_tokens": TOKENS, "seed": 7}
    with client.generate(
        inputs, modalities=["text", "audio"], params=params, stage_events=True
    ) as events:
        return ChatProgress(sys.stdout).read(events)


def _leave_behind(answer: ChatAnswer) -> None:
    (FOLDER / "answer.txt").write_text(answer.text, encoding="utf-8")
    answer.audio().to_wav(FOLDER / "answer.wav")
    title = f"first token {answer.first_text:.2f} s, first sound {answer.first_audio:.2f} s"
    draw_timeline(answer.timeline, title, FOLDER / "timeline.png")
    print(f"\n\n{title}, {answer.audio().seconds:.1f} s of speech")
    for name in ("answer.txt", "answer.wav", "timeline.png"):
        print(f"  {FOLDER / name}")


def _write_picture(file: Path) -> None:
    y, x = np.mgrid[0:120, 0:160]
    pixels = np.stack([x * 255 // 160, y * 255 // 120, (x ^ y) * 2 % 256], -1).astype(np.uint8)
    Image.fromarray(pixels).save(file)


def _write_sound(file: Path) -> None:
    t = np.arange(16000) / 16000
    samples = np.rint(0.3 * np.sin(2 * np.pi * (220 + 220 * t) * t) * 32767).astype("<i2")
    with wave.open(str(file), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16000)
        out.writeframes(samples.tobytes())


if __name__ == "__main__":
    sys.exit(main())
