"""Qwen3-Omni on the tiny checkpoint, whole and on the CPU, against transformers' `generate()`.

The weights are tiny, so what is measured is everything around them: scheduling, batching, streams
between processes, and Python. Ratios are of two things done in turns in one run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.idle import use_of
from benchmarks.report import Bar, Ratios, alternate, main, seconds_of
from tests.support.checkpoints import tiny_checkpoint
from tests.support.oracle import Oracle, Prompt, Settings
from tests.support.speech_pipeline import SpeechPipeline, speech_pipeline

REQUESTS = 16
TOKENS = 24
ROUNDS = 3
LATENCY_ROUNDS = 7
IDLE_SECONDS = 10.0
IMPORTS = 7


def measure() -> Iterable[Bar]:
    """Start the pipeline, work it, leave it alone, and stop it."""
    with TemporaryDirectory() as cache:
        judge = Oracle(tiny_checkpoint(), Path(cache))
        began = time.perf_counter()
        with speech_pipeline(tiny_checkpoint()) as pipeline:
            ready_seconds = time.perf_counter() - began
            torch.set_num_threads(os.cpu_count() or 1)
            prompts = [
                Prompt(({"role": "user", "content": f"Say sentence number {number}."},))
                for number in range(REQUESTS)
            ]
            settings = Settings(TOKENS, TOKENS)

            def ours(count: int = REQUESTS) -> None:
                with ThreadPoolExecutor(count) as pool:
                    list(pool.map(lambda prompt: pipeline.ask(prompt, settings), prompts[:count]))

            def theirs(count: int = REQUESTS) -> None:
                for prompt in prompts[:count]:
                    judge._generate(prompt, settings)

            def batch() -> None:
                _generate_together(judge, prompts)

            yield from _throughput(alternate(theirs, ours, rounds=ROUNDS), "one by one", 5.0)
            yield from _throughput(alternate(batch, ours, rounds=ROUNDS), "as one batch", 0.9)
            latency = alternate(lambda: ours(1), lambda: theirs(1), rounds=LATENCY_ROUNDS)
            yield latency.at_most(1.15, bar="latency of one request", method="against generate()")
            yield _streaming(pipeline, prompts[0])
            yield _idle()
        yield _start(ready_seconds)


def _throughput(ratios: Ratios, how: str, goal: float) -> Iterator[Bar]:
    """Requests per second of the pipeline over those of generate()."""
    method = f"{REQUESTS} at once against generate() {how}, {TOKENS} tokens and frames each"
    method += f"; median of {len(ratios.rounds)} alternating rounds"
    name = f"requests per second, generate() {how}"
    ok = ratios.median >= goal
    yield Bar(name, ratios.median, ratios.range, f">= {goal:g}x", ok, method)


def _generate_together(judge: Oracle, prompts: Sequence[Prompt]) -> None:
    """Answer all prompts in one padded batch."""
    processor, model = judge.processor, judge.model
    texts = [
        processor.apply_chat_template(
            [dict(message) for message in prompt.messages],
            add_generation_prompt=True,
            tokenize=False,
        )
        for prompt in prompts
    ]
    inputs = processor(text=texts, return_tensors="pt", padding=True, padding_side="left")
    model.generate(
        **inputs,
        thinker_max_new_tokens=TOKENS + 1,
        thinker_do_sample=False,
        thinker_eos_token_id=model.config.im_end_token_id,
        talker_do_sample=False,
        talker_repetition_penalty=1.0,
        talker_max_new_tokens=TOKENS + 1,
    )


def _streaming(pipeline: SpeechPipeline, prompt: Prompt) -> Bar:
    """Time per token with tokens streamed to decode and talker, against text alone."""
    long = {"max_tokens": 128, "talker_max_tokens": 1, "ignore_eos": True}

    def tokens(modalities: list[str]) -> None:
        pipeline.ask(prompt, modalities=modalities, params=long)

    ratios = alternate(
        lambda: tokens(["text", "audio"]), lambda: tokens(["text"]), rounds=LATENCY_ROUNDS
    )
    return ratios.at_most(
        1.02,
        bar="decode step while speech listens",
        method="128 tokens streamed to decode and talker, against decode alone",
    )


def _idle() -> Bar:
    """CPU that the waiting pipeline uses, all its processes together, in cores."""
    pids = list(_descendants(os.getpid()))
    before = {pid: use_of(pid).cpu_seconds for pid in pids}
    time.sleep(IDLE_SECONDS)
    used = sum(use_of(pid).cpu_seconds - seconds for pid, seconds in before.items()) / IDLE_SECONDS
    method = f"{len(pids)} processes, over {IDLE_SECONDS:g} s"
    return Bar("idle pipeline, cores", used, (used, used), "<= 0.02", used <= 0.02, method)


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield int(child)
            yield from _descendants(int(child))


def _start(ready_seconds: float) -> Bar:
    """Time until the pipeline is ready, against seven processes that only import SGLang."""
    ratio = ready_seconds / seconds_of(_imports)
    method = f"omni up until ready, against {IMPORTS} processes that import sglang at once"
    return Bar("time to ready", ratio, (ratio, ratio), "<= 0.6x", ratio <= 0.6, method)


def _imports() -> None:
    code = "import sglang, sglang.srt.managers.scheduler"
    with _running([sys.executable, "-c", code], IMPORTS) as processes:
        for process in processes:
            process.wait()


@contextmanager
def _running(command: list[str], count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    processes = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(count)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main(measure))
