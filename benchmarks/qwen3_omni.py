"""Qwen3-Omni on the tiny checkpoint, whole and on the CPU, against transformers' `generate()`.

The weights are tiny, so what is measured is everything around them: scheduling, batching, streams
between processes, and Python. Ratios are of two things done in turns in one run. Each part can be
run alone with `--only`; all of them take about six minutes on two quiet cores.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.idle import use_of
from benchmarks.report import Bar, Ratios, alternate, main, seconds_of
from omni_runtime.sglang_bridge.platform_plugin import CPU_PLATFORM, PLATFORM_VARIABLE
from tests.support.checkpoints import tiny_checkpoint
from tests.support.oracle import Oracle
from tests.support.prompts import Prompt, Settings
from tests.support.speech_pipeline import SpeechPipeline, speech_pipeline

REQUESTS = 16
TOKENS = 24
ROUNDS = 3
# One by one, generate() is as fast per request with few as with many.
ONE_BY_ONE = 4
LATENCY_ROUNDS = 7
STREAMED_TOKENS = 256
# What follows a start or an answer (garbage, freed memory) is not part of waiting.
SETTLE_SECONDS = 5.0
IDLE_SECONDS = 20.0
IMPORTS = 7
PARTS = ("start", "idle", "streaming", "latency", "one_by_one", "batch")


def measure(parts: Collection[str] = PARTS) -> Iterable[Bar]:
    """Start the pipeline, leave it alone, work it, and stop it."""
    with TemporaryDirectory() as cache:
        checkpoint = tiny_checkpoint()
        began = time.perf_counter()
        with speech_pipeline(checkpoint) as pipeline:
            ready = _Spent(time.perf_counter() - began, sum(_used(_descendants(os.getpid()))))
            if "idle" in parts:
                yield _idle()
            if "streaming" in parts:
                yield _streaming(pipeline)
            if {"latency", "one_by_one", "batch"} & set(parts):
                sides = _Sides(pipeline, Oracle(checkpoint, Path(cache)))
                yield from _against_generate(sides, parts)
        if "start" in parts:
            yield from _start(ready)


@dataclass(frozen=True, slots=True)
class _Sides:
    """The pipeline and transformers, asked the same."""

    pipeline: SpeechPipeline
    judge: Oracle

    def ours(self, count: int) -> None:
        """Ask the pipeline for several answers at once."""
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda prompt: self.pipeline.ask(prompt, SETTINGS), PROMPTS[:count]))

    def one_by_one(self, count: int) -> None:
        """Call generate() once per prompt."""
        for prompt in PROMPTS[:count]:
            self.judge._generate(prompt, SETTINGS)

    def batch(self) -> None:
        """Call generate() once, with all prompts padded to one length."""
        _generate_together(self.judge, PROMPTS)

    def settle_threads(self) -> int:
        """Give generate() as many threads as it is fastest with, and return their number."""
        self.one_by_one(1)
        taken = {threads: self._seconds_with(threads) for threads in (1, os.cpu_count() or 1)}
        best = min(taken, key=lambda threads: taken[threads])
        torch.set_num_threads(best)
        return best

    def _seconds_with(self, threads: int) -> float:
        torch.set_num_threads(threads)
        return min(seconds_of(lambda: self.one_by_one(1)) for _ in range(2))


SETTINGS = Settings(TOKENS, TOKENS)
PROMPTS = [
    Prompt(({"role": "user", "content": f"Say sentence number {number}."},))
    for number in range(REQUESTS)
]


def _against_generate(sides: _Sides, parts: Collection[str]) -> Iterator[Bar]:
    threads = sides.settle_threads()
    how = f"{TOKENS} tokens and frames each, generate() on the {threads} threads it likes best"
    if "latency" in parts:
        latency = alternate(
            lambda: sides.ours(1), lambda: sides.one_by_one(1), rounds=LATENCY_ROUNDS
        )
        yield latency.at_most(1.15, bar="latency of one request", method=how)
    if "one_by_one" in parts:
        speed = _speed(sides, lambda: sides.one_by_one(ONE_BY_ONE), ONE_BY_ONE)
        method = f"{REQUESTS} at once against {ONE_BY_ONE} one after another; {how}"
        yield speed.at_least(5.0, bar="requests per second, generate() one by one", method=method)
    if "batch" in parts:
        speed = _speed(sides, sides.batch, REQUESTS)
        method = f"{REQUESTS} at once against one offline batch of as many; {how}"
        yield speed.at_least(0.9, bar="requests per second, generate() as a batch", method=method)


def _speed(sides: _Sides, theirs: Callable[[], object], count: int) -> Ratios:
    """Requests per second of the pipeline over those of generate()."""
    seconds = alternate(theirs, lambda: sides.ours(REQUESTS), rounds=ROUNDS)
    return Ratios(tuple(ratio * REQUESTS / count for ratio in seconds.rounds))


def _generate_together(judge: Oracle, prompts: Sequence[Prompt]) -> None:
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


def _streaming(pipeline: SpeechPipeline) -> Bar:
    """Time per token with tokens streamed to decode and talker, against decode alone."""
    long = {"max_tokens": STREAMED_TOKENS, "talker_max_tokens": 1, "ignore_eos": True}

    def tokens(modalities: list[str]) -> None:
        pipeline.ask(PROMPTS[0], modalities=modalities, params=long)

    ratios = alternate(
        lambda: tokens(["text", "audio"]), lambda: tokens(["text"]), rounds=LATENCY_ROUNDS
    )
    return ratios.at_most(
        1.02,
        bar="decode step while speech listens",
        method=f"{STREAMED_TOKENS} tokens streamed to decode and talker, against decode alone",
    )


def _idle() -> Bar:
    """CPU that the waiting pipeline uses, all its processes together."""
    time.sleep(SETTLE_SECONDS)
    pids = list(_descendants(os.getpid()))
    before = sum(_used(pids))
    time.sleep(IDLE_SECONDS)
    share = 100 * (sum(_used(pids)) - before) / IDLE_SECONDS
    method = f"{len(pids)} processes together, over {IDLE_SECONDS:g} s"
    return Bar("idle pipeline, % of a core", share, (share, share), "<= 2", share <= 2, method)


def _used(pids: Iterable[int]) -> Iterator[float]:
    """Yield the processor seconds of each process."""
    return (use_of(pid).cpu_seconds for pid in pids)


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield int(child)
            yield from _descendants(int(child))


@dataclass(frozen=True, slots=True)
class _Spent:
    """What starting something took: seconds by the clock, and of processors."""

    wall: float
    cpu: float


def _start(ready: _Spent) -> Iterator[Bar]:
    """What it takes until the pipeline is ready, against seven processes that import SGLang."""
    imports = _imports()
    method = f"omni up until ready and warm, against {IMPORTS} times 'import sglang' at once"
    for name, ours, theirs in (
        ("time to ready", ready.wall, imports.wall),
        ("processor time to ready", ready.cpu, imports.cpu),
    ):
        ratio = ours / theirs
        how = f"{method}: {ours:.1f} s against {theirs:.1f} s"
        yield Bar(name, ratio, (ratio, ratio), "<= 0.6x", ratio <= 0.6, how)


def _imports() -> _Spent:
    environment = {**os.environ, PLATFORM_VARIABLE: CPU_PLATFORM}
    before, began = _children_cpu(), time.perf_counter()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", "import sglang"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(IMPORTS)
    ]
    failed = [process for process in processes if process.wait()]
    if failed:
        raise RuntimeError("SGLang cannot be imported")
    return _Spent(time.perf_counter() - began, _children_cpu() - before)


def _children_cpu() -> float:
    """Processor seconds of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main(measure, parts=PARTS))
