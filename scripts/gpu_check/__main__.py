"""Shows on one GPU what no CPU can: `python -m scripts.gpu_check`, at most eight minutes.

Two pipelines are started one after another on a tiny float32 checkpoint, and asked what
transformers is asked on the CPU: the colocated speech pipeline with CUDA graphs and MPS, then two
copies of the text pipeline that share their weights. A process on a shared card counts as ready
only when the MPS daemon lists it, so a pipeline that is ready is attached.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from scripts.gpu_check.findings import Finding, Said, compared, graphs_captured, weights_shared

if TYPE_CHECKING:
    from omni_cli.chat_answer import ChatAnswer
    from tests.support.oracle import Oracle
    from tests.support.prompts import Answer

HERE = Path(__file__).parent
PARTS = ("speech", "shared")
PROMPTS = ("text", "image", "audio")
SECONDS = 480.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen parts; 0 when everything was as it should be, 1 when not, 2 without a GPU."""
    options = _options(arguments)
    problem = _missing_gpu()
    if problem is not None:
        print(problem, file=sys.stderr)
        return 2
    findings = []
    for finding in _findings(
        options.only or PARTS, options.set, time.monotonic() + options.seconds
    ):
        findings.append(finding)
        print(json.dumps(asdict(finding)) if options.json else finding, flush=True)
    return 0 if findings and all(finding.ok for finding in findings) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.gpu_check")
    parser.add_argument("--only", action="append", choices=PARTS, help="repeatable")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="no part begins after it")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument(
        "--set",
        nargs=2,
        action="append",
        default=[],
        metavar=("PATH", "VALUE"),
        help="another setting of both pipelines, as for omni up, such as "
        "thinker.engine.attention_backend torch_native; repeatable",
    )
    return parser.parse_args(arguments)


def _missing_gpu() -> str | None:
    import torch

    if torch.cuda.is_available():
        return None
    return "there is no CUDA device here; this check needs one"


def _findings(
    parts: Sequence[str], settings: Sequence[Sequence[str]], deadline: float
) -> Iterator[Finding]:
    from omni_models.qwen3_omni.tiny import write_tiny_checkpoint
    from tests.support.oracle import Oracle

    flags = [word for path, value in settings for word in (f"--{path}", value)]
    with TemporaryDirectory(prefix="omni-gpu-") as folder:
        checkpoint, answers = Path(folder, "tiny"), Path(folder, "answers")
        answers.mkdir()
        write_tiny_checkpoint(checkpoint, 7)
        judge = Oracle(checkpoint, answers)
        for part in parts:
            if time.monotonic() > deadline:
                yield Finding(part, False, "not begun: the time is up")
                continue
            try:
                yield from _part(part, checkpoint, judge, flags)
            except Exception as error:  # the other part may still show something
                yield Finding(part, False, f"{type(error).__name__}: {error}")


def _part(part: str, checkpoint: Path, judge: Oracle, flags: Sequence[str]) -> Iterator[Finding]:
    from tests.support.prompts import PROMPTS as ALL
    from tests.support.speech_pipeline import speech_pipeline

    speech = part == "speech"
    began = time.monotonic()
    with speech_pipeline(checkpoint, *flags, config=HERE / f"{part}.yaml") as pipeline:
        yield Finding(f"{part}: ready, attached to MPS", True, f"{time.monotonic() - began:.0f} s")
        modalities = ["text", "audio"] if speech else ["text"]
        alone = [pipeline.ask(ALL[name], modalities=modalities) for name in PROMPTS]
        names = [*PROMPTS, *PROMPTS, *PROMPTS][:8]
        together = pipeline.ask_together([ALL[name] for name in names], modalities=modalities)
        log = pipeline.log.read_text(errors="replace")
    for how, asked, answers in (("alone", PROMPTS, alone), ("of 8", names, together)):
        for name, answer in zip(asked, answers, strict=True):
            wanted = _of_judge(judge.answer(ALL[name]))
            yield from compared(f"{part}: {name} {how}", _ours(answer), wanted, speech=speech)
    if speech:
        yield from graphs_captured(log, ("thinker", "talker_ar"))
    else:
        yield weights_shared(log)


def _ours(answer: ChatAnswer) -> Said:
    return Said(answer.token_ids, np.asarray(answer.codec_codes), answer.samples)


def _of_judge(answer: Answer) -> Said:
    return Said(answer.text_ids.tolist(), answer.codes, answer.wav)


if __name__ == "__main__":
    sys.exit(main())
