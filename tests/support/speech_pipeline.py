"""Qwen3-Omni's speech pipeline on the tiny checkpoint, started as a user starts it."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omni_cli.chat_answer import ChatAnswer, ChatProgress
from omni_client import OmniClient
from omni_wire.messages import Tree
from tests.support.oracle import VIDEO_PIXELS, Prompt, Settings

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "examples" / "qwen3-omni-cpu.yaml"
LISTENS = "the gateway listens on "
START_SECONDS = 300
ANSWER_SECONDS = 100


class SpeechPipeline:
    """A running pipeline, by the addresses of its gRPC and HTTP APIs."""

    def __init__(self, address: str, url: str) -> None:
        self.address = address
        self.url = url

    def ask(
        self,
        prompt: Prompt,
        settings: Settings | None = None,
        modalities: Sequence[str] = (),
        params: Mapping[str, Tree] | None = None,
    ) -> ChatAnswer:
        """Return the answer to a prompt, greedy as the judge's."""
        inputs: dict[str, Any] = {
            "messages": prompt.openai_messages(),
            "video_min_pixels": VIDEO_PIXELS["shortest_edge"],
            "video_max_pixels": VIDEO_PIXELS["longest_edge"],
            "use_audio_in_video": prompt.use_audio_in_video,
        }
        return self.send(inputs, {**_greedy(settings or Settings()), **(params or {})}, modalities)

    def send(
        self, inputs: Mapping[str, Tree], params: Mapping[str, Tree], modalities: Sequence[str] = ()
    ) -> ChatAnswer:
        """Return the answer to a request as it stands."""
        with (
            OmniClient(self.address, timeout_seconds=ANSWER_SECONDS) as client,
            client.generate(
                inputs, modalities=list(modalities), params=params, stage_events=True
            ) as events,
        ):
            return ChatProgress(None).read(events)

    def ask_together(self, prompts: Sequence[Prompt]) -> list[ChatAnswer]:
        """Return the answers to prompts asked at once."""
        with ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(self.ask, prompts))


@contextmanager
def speech_pipeline(checkpoint: Path, *settings: str) -> Iterator[SpeechPipeline]:
    """Run the pipeline for as long as the context lasts.

    Args:
        settings: further flags of `omni up`.
    """
    omni = Path(sys.executable).with_name("omni")
    command = [str(omni), "up", "--config", str(CONFIG), "--model-path", str(checkpoint)]
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = subprocess.Popen(
            [*command, "--port", "0", *settings], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield SpeechPipeline(*_addresses(process, Path(log.name)))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)


def _addresses(process: subprocess.Popen[bytes], log: Path) -> tuple[str, str]:
    began = time.monotonic()
    while process.poll() is None and time.monotonic() - began < START_SECONDS:
        for line in log.read_text(errors="replace").splitlines():
            if LISTENS in line:
                address, _, url = line.partition(LISTENS)[2].partition(" and ")
                return address.strip(), url.strip()
        time.sleep(0.2)
    lines = log.read_text(errors="replace").splitlines()[-30:]
    raise AssertionError("the pipeline did not start:\n" + "\n".join(lines))


def _greedy(settings: Settings) -> dict[str, Tree]:
    return {
        "max_tokens": settings.max_tokens,
        "temperature": 0.0,
        "speaker": settings.speaker,
        "talker_temperature": 0.0,
        "talker_repetition_penalty": settings.repetition_penalty,
        "talker_max_tokens": settings.max_frames,
        "return_codes": True,
    }
