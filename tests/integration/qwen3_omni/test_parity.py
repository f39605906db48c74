"""The comparison with transformers under everything that may not change an answer.

Each launch is one engine with a checkpoint of its own and one hostile setting; together they meet
every pair of setting and prompt. `make test-all` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from omni_runtime.scheduler import Chunks, NewRequest
from omni_wire.messages import StreamDone
from tests.support.checkpoints import tiny_checkpoint
from tests.support.encoded_prompts import media_hidden_rows, merged_payload
from tests.support.oracle import PROMPTS, Oracle, Settings
from tests.support.speech_stages import (
    GREEDY_SPEECH,
    codes_of,
    counters,
    renamed,
    start_talker,
    start_thinker,
    talker_input,
    tokens_of,
    wait_until_free,
)
from tests.support.stage_process import StageProcess

pytestmark = [pytest.mark.parity, pytest.mark.timeout(600)]

RETRACT = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "3"}
COPIES = 2


@dataclass(frozen=True)
class Launch:
    """One engine of the table.

    Attributes:
        seed: of its checkpoint.
        engine: settings under `engine.*`.
        start: tokens before speech starts.
        penalty: on repeated codes.
    """

    seed: int
    engine: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    start: int = 1
    penalty: float = 1.0


# Seeds whose checkpoints answer every prompt with enough variety; some end speech by themselves.
THINKERS = {
    "plain": Launch(1),
    "chunked prefill": Launch(2, {"chunked_prefill_size": 16}),
    "retracted": Launch(5, environment=RETRACT),
    "chunked and retracted": Launch(8, {"chunked_prefill_size": 8}, RETRACT),
    "hardly any memory": Launch(9, {"max_total_tokens": 420}),
    "no prefix cache": Launch(13, {"disable_radix_cache": True}),
}
TALKERS = {
    "plain": Launch(1, penalty=1.05),
    "chunked prefill": Launch(2, {"chunked_prefill_size": 16}, start=3),
    "retracted": Launch(5, {}, RETRACT, start=5, penalty=1.05),
    "chunked and retracted": Launch(8, {"chunked_prefill_size": 8}, RETRACT),
    "hardly any memory": Launch(9, {"max_total_tokens": 420}, start=3, penalty=1.05),
}


@pytest.fixture
def oracle(launch: Launch, tmp_path: Path) -> Oracle:
    return Oracle(tiny_checkpoint(launch.seed), tmp_path)


@pytest.fixture
def thinker(launch: Launch, oracle: Oracle) -> Iterator[StageProcess]:
    stage = start_thinker(oracle.checkpoint, launch.engine, environment=launch.environment)
    yield stage
    stage.close()


@pytest.fixture
def talker(launch: Launch, oracle: Oracle) -> Iterator[StageProcess]:
    stage = start_talker(
        oracle.checkpoint,
        launch.engine,
        environment=launch.environment,
        partial_start_min_chunks=launch.start,
    )
    yield stage
    stage.close()


@pytest.mark.parametrize("launch", THINKERS.values(), ids=THINKERS)
def test_text_is_transformers(oracle: Oracle, thinker: StageProcess) -> None:
    start = counters(thinker)
    wanted, payloads = {}, []
    for name, prompt in PROMPTS.items():
        answer = oracle.answer(prompt)
        answer.require_variety()
        made = merged_payload(oracle, prompt, name, {"max_tokens": 24})
        for copy in range(COPIES):
            payload = renamed(made, f"{name} {copy}")
            payloads.append(payload)
            wanted[payload.key] = answer.text_ids.tolist()
    thinker.put(*map(NewRequest, payloads))
    seen = thinker.until_ended(wanted)
    assert {key: tokens_of(seen, key, "decode") for key in wanted} == wanted
    assert wait_until_free(thinker, start) == start


@pytest.mark.filterwarnings("ignore:Passing .repetition_penalty. with .inputs_embeds.")
@pytest.mark.parametrize("launch", TALKERS.values(), ids=TALKERS)
def test_speech_is_transformers(launch: Launch, oracle: Oracle, talker: StageProcess) -> None:
    start = counters(talker)
    settings = Settings(max_frames=40, repetition_penalty=launch.penalty)
    params = {
        **GREEDY_SPEECH,
        "talker_max_tokens": 40,
        "talker_repetition_penalty": launch.penalty,
    }
    wanted: dict[Any, Any] = {}
    dripping: list[list[Chunks | StreamDone]] = []
    for name, prompt in PROMPTS.items():
        answer = oracle.answer(prompt, settings)
        answer.require_variety()
        made = merged_payload(oracle, prompt, name, params)
        hidden = media_hidden_rows(oracle, prompt)
        for copy in range(COPIES):
            payload = renamed(made, f"{name} {copy}")
            chunks = talker_input(payload.key, answer.text_ids.tolist(), hidden)
            wanted[payload.key] = answer.codes.T.tolist()
            talker.put(NewRequest(payload))
            done = StreamDone(payload.key, "thinker", len(chunks))
            # The second copy gets its text at once, the first a token at a time.
            if copy:
                talker.put(*chunks, done)
            else:
                dripping.append([*chunks, done])
    for turn in range(max(map(len, dripping))):
        for messages in dripping:
            talker.put(*messages[turn : turn + 1])
    seen = talker.until_ended(wanted)
    assert {key: codes_of(seen, key) for key in wanted} == wanted
    assert wait_until_free(talker, start) == start
