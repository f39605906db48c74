"""The audit of the engines: copies that share weights hold the same bits and answer alike.

Loaded alone, as leader and as follower, every tensor of the model is the same, before and after
each has answered everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omni_runtime.scheduler import NewRequest
from omni_wire.messages import StreamDone
from tests.support.prompts import PROMPTS
from tests.support.shared_stages import engine_tensors, shared_copies
from tests.support.speech_pipeline import speech_pipeline
from tests.support.speech_stages import (
    ENGINE,
    FACTORIES,
    codes_of,
    renamed,
    talker_input,
    tokens_of,
)
from tests.support.stage_process import StageProcess

if TYPE_CHECKING:
    from tests.integration.qwen3_omni.conftest import Case
    from tests.support.oracle import Oracle

pytestmark = [pytest.mark.parity, pytest.mark.timeout(480)]


Answers = Mapping[str, list[int] | list[list[int]]]


@dataclass(frozen=True, slots=True)
class Engine:
    """One stage with an engine.

    Attributes:
        ask: asks a copy everything at once; returns what it said by prompt.
        expected: what transformers says.
    """

    factory: str
    arguments: Mapping[str, object]
    ask: Callable[[StageProcess, Mapping[str, Case], str], Answers]
    expected: Callable[[Case], list[int] | list[list[int]]]


def ask_thinker(stage: StageProcess, cases: Mapping[str, Case], label: str) -> Answers:
    payloads = {name: renamed(cases[name].payload, f"{label} {name}") for name in PROMPTS}
    stage.put(*map(NewRequest, payloads.values()))
    said = stage.until_ended(payload.key for payload in payloads.values())
    return {name: tokens_of(said, payload.key, "decode") for name, payload in payloads.items()}


def ask_talker(stage: StageProcess, cases: Mapping[str, Case], label: str) -> Answers:
    payloads = {name: renamed(cases[name].payload, f"{label} {name}") for name in PROMPTS}
    for name, payload in payloads.items():
        case = cases[name]
        chunks = talker_input(payload.key, case.answer.text_ids.tolist(), case.hidden)
        stage.put(NewRequest(payload), *chunks, StreamDone(payload.key, "thinker", len(chunks)))
    said = stage.until_ended(payload.key for payload in payloads.values())
    return {name: codes_of(said, payload.key) for name, payload in payloads.items()}


ENGINES = {
    "thinker": Engine(
        "create_thinker",
        {"speech_enabled": True},
        ask_thinker,
        lambda case: list(case.answer.text_ids.tolist()),
    ),
    "talker_ar": Engine(
        "create_talker_ar",
        {"max_running_requests": 32, "codec_coalesce_frames": 1},
        ask_talker,
        lambda case: list(case.answer.codes.T.tolist()),
    ),
}
DEVICES = [
    pytest.param(None, id="CPU"),
    pytest.param(0, id="GPU", marks=pytest.mark.gpu),
]


@pytest.mark.parametrize("gpu_id", DEVICES)
@pytest.mark.parametrize("name", ENGINES)
def test_copies_that_share_are_and_answer_as_one_that_is_alone(
    name: str, gpu_id: int | None, checkpoint: Path, cases: Mapping[str, Case], tmp_path: Path
) -> None:
    engine = ENGINES[name]
    arguments: dict[str, Any] = {
        "model_path": str(checkpoint),
        "gpu_id": gpu_id,
        "server_args_overrides": ENGINE,
        **engine.arguments,
    }
    factory = f"{FACTORIES}.{engine.factory}"
    alone = StageProcess(factory, arguments)
    bits, words = alone.ask(engine_tensors), engine.ask(alone, cases, "alone")
    alone.close()
    if gpu_id is None:
        assert words == {case: engine.expected(cases[case]) for case in PROMPTS}
    with shared_copies(factory, name, tmp_path / "store", **arguments) as copies:
        for index, copy in enumerate(copies):
            assert copy.ask(engine_tensors) == bits
            assert engine.ask(copy, cases, f"copy {index}") == words
        for copy in copies:
            # By now a model may hold tensors that it works with, beside those that were loaded.
            now = copy.ask(engine_tensors)
            assert {slot: now.get(slot) for slot in bits} == bits, "an engine wrote to its weights"


def test_talkers_that_share_under_omni_up_speak_as_transformers_does(
    checkpoint: Path, oracle: Oracle
) -> None:
    shared = ("--weight_share", "on", "--talker_ar.engine.max_total_tokens", "8192")
    with speech_pipeline(checkpoint, "--processes.talker_ar.num_replicas", "2", *shared) as running:
        answers = running.ask_together([PROMPTS[name] for name in PROMPTS])
    for name, answer in zip(PROMPTS, answers, strict=True):
        expected = oracle.answer(PROMPTS[name])
        assert answer.token_ids == expected.text_ids.tolist()
        assert answer.codec_codes == expected.codes.tolist()
