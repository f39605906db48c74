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
from tests.support.oracle import PROMPTS
from tests.support.shared_stages import engine_tensors, shared_copies
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

pytestmark = [pytest.mark.parity, pytest.mark.timeout(480)]


@dataclass(frozen=True, slots=True)
class Engine:
    """One stage with an engine.

    Attributes:
        check: asks a copy for everything, and compares.
    """

    factory: str
    arguments: Mapping[str, object]
    check: Callable[[StageProcess, Mapping[str, Case], str], None]


def check_thinker(stage: StageProcess, cases: Mapping[str, Case], label: str) -> None:
    payloads = {name: renamed(cases[name].payload, f"{label} {name}") for name in PROMPTS}
    stage.put(*map(NewRequest, payloads.values()))
    said = stage.until_ended(payload.key for payload in payloads.values())
    for name, payload in payloads.items():
        assert tokens_of(said, payload.key, "decode") == cases[name].answer.text_ids.tolist()


def check_talker(stage: StageProcess, cases: Mapping[str, Case], label: str) -> None:
    payloads = {name: renamed(cases[name].payload, f"{label} {name}") for name in PROMPTS}
    for name, payload in payloads.items():
        case = cases[name]
        chunks = talker_input(payload.key, case.answer.text_ids.tolist(), case.hidden)
        done = StreamDone(payload.key, "thinker", len(chunks))
        stage.put(NewRequest(payload), *chunks, done)
    said = stage.until_ended(payload.key for payload in payloads.values())
    for name, payload in payloads.items():
        assert codes_of(said, payload.key) == cases[name].answer.codes.T.tolist()


ENGINES = {
    "thinker": Engine("create_thinker", {"speech_enabled": True}, check_thinker),
    "talker_ar": Engine(
        "create_talker_ar",
        {"max_running_requests": 32, "codec_coalesce_frames": 1},
        check_talker,
    ),
}


@pytest.mark.parametrize("name", ENGINES)
def test_copies_that_share_are_and_answer_as_one_that_is_alone(
    name: str, checkpoint: Path, cases: Mapping[str, Case], tmp_path: Path
) -> None:
    engine = ENGINES[name]
    arguments: dict[str, Any] = {
        "model_path": str(checkpoint),
        "server_args_overrides": ENGINE,
        **engine.arguments,
    }
    factory = f"{FACTORIES}.{engine.factory}"
    alone = StageProcess(factory, arguments)
    bits = alone.ask(engine_tensors)
    alone.close()
    with shared_copies(factory, name, tmp_path / "store", **arguments) as copies:
        for index, copy in enumerate(copies):
            assert copy.ask(engine_tensors) == bits
            engine.check(copy, cases, f"copy {index}")
        for copy in copies:
            assert copy.ask(engine_tensors) == bits, "an engine wrote to its weights"
