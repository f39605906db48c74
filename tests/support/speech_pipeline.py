"""Qwen3-Omni's speech pipeline on the tiny checkpoint, started as a user starts it."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

from prometheus_client.parser import text_string_to_metric_families

from omni_cli.chat_answer import ChatAnswer, ChatProgress
from omni_client import OmniClient
from omni_wire.messages import Tree
from tests.support.patience import PROGRAM_SECONDS
from tests.support.ports import free_ports
from tests.support.prompts import VIDEO_PIXELS, Prompt, Settings

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "examples" / "qwen3-omni-cpu.yaml"
LISTENS = "the gateway listens on "
START_SECONDS = 300
ANSWER_SECONDS = 100
MOST_GROUPS = 9


class SpeechPipeline:
    """A running pipeline, by the addresses of its gRPC and HTTP APIs.

    Args:
        log: what it prints.
        metrics_port: of the gateway's metrics page; its groups have the ports after it.
    """

    def __init__(self, address: str, url: str, log: Path, metrics_port: int) -> None:
        self.address = address
        self.url = url
        self.log = log
        self._metrics_port = metrics_port

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
        return self.send(inputs, {**greedy(settings or Settings()), **(params or {})}, modalities)

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

    def measured(self, name: str) -> dict[str, float]:
        """Return a metric of the groups' stages by instance."""
        found: dict[str, float] = {}
        for port in itertools.count(self._metrics_port + 1):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
                    text = page.read().decode()
            except URLError:
                return found
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if sample.name == name:
                        found[sample.labels["stage"]] = sample.value
        raise AssertionError("ports do not end")

    def ask_together(
        self,
        prompts: Sequence[Prompt],
        settings: Settings | None = None,
        modalities: Sequence[str] = (),
    ) -> list[ChatAnswer]:
        """Return the answers to prompts asked at once."""
        with ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(lambda prompt: self.ask(prompt, settings, modalities), prompts))


@contextmanager
def speech_pipeline(
    checkpoint: Path,
    *settings: str,
    config: Path = CONFIG,
    environment: Mapping[str, str] | None = None,
) -> Iterator[SpeechPipeline]:
    """Run a pipeline for as long as the context lasts.

    Args:
        settings: further flags of `omni up`.
        config: its configuration; the speech pipeline for a CPU where nothing is said.
        environment: added to the variables of this process.
    """
    omni = Path(sys.executable).with_name("omni")
    command = [str(omni), "up", "--config", str(config), "--model-path", str(checkpoint)]
    metrics_port = free_ports(1 + MOST_GROUPS)
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = subprocess.Popen(
            [*command, "--port", "0", "--metrics-port", str(metrics_port), *settings],
            cwd=ROOT,
            env={**os.environ, "HF_HUB_OFFLINE": "1", **(environment or {})},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            addresses = _addresses(process, Path(log.name))
            yield SpeechPipeline(*addresses, Path(log.name), metrics_port)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=PROGRAM_SECONDS)


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


def greedy(settings: Settings) -> dict[str, Tree]:
    """Return the parameters of an answer as the judge gives it."""
    return {
        "max_tokens": settings.max_tokens,
        "temperature": 0.0,
        "repetition_penalty": settings.text_penalty,
        "speaker": settings.speaker,
        "talker_temperature": 0.0,
        "talker_repetition_penalty": settings.repetition_penalty,
        "talker_max_tokens": settings.max_frames,
        "return_codes": True,
    }
