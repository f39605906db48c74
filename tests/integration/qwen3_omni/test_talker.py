"""The talker on SGLang: transformers' frames, however the text drips in, and nothing left over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from omni_models.qwen3_omni.talker.prompt_rows import HEAD_ROWS
from omni_runtime.scheduler import (
    Aborted,
    AbortRequest,
    Chunks,
    InboxMessage,
    NewRequest,
    OutboxMessage,
    RequestError,
    Resume,
    Stall,
    StepOutput,
)
from omni_wire.errors import InvalidRequest
from omni_wire.identity import RequestKey
from omni_wire.messages import Payload, StepFrame, StreamDone, Tree
from tests.support.prompts import PROMPTS, Settings
from tests.support.speech_stages import (
    codes_of,
    counters,
    renamed,
    result_of,
    start_talker,
    steps_of,
    talker_input,
    wait_until_free,
    wait_until_occupied,
)
from tests.support.stage_process import StageProcess

if TYPE_CHECKING:
    from tests.integration.qwen3_omni.conftest import Case
    from tests.support.oracle import Oracle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAMES = list(PROMPTS)
SPOKEN = {"frames": 24, "finish_reason": "length", "start_tokens": 1}
Cases = Mapping[str, "Case"]


@pytest.fixture(scope="module")
def talker(checkpoint: Path) -> Iterator[StageProcess]:
    stage = start_talker(checkpoint)
    yield stage
    stage.close()


@dataclass(frozen=True, slots=True)
class Speech:
    """One request of a test: its payload and what the thinker sends of it."""

    payload: Payload
    chunks: list[Chunks]
    done: StreamDone

    @property
    def key(self) -> RequestKey:
        return self.payload.key

    @property
    def messages(self) -> list[InboxMessage]:
        return [NewRequest(self.payload), *self.chunks, self.done]


def speech(case: Case, name: str, **params: Tree) -> Speech:
    payload = renamed(case.payload, name, **params)
    chunks = talker_input(payload.key, case.answer.text_ids.tolist(), case.hidden)
    return Speech(payload, chunks, StreamDone(payload.key, "thinker", len(chunks)))


def frames(case: Case) -> list[list[int]]:
    found: list[list[int]] = case.answer.codes.T.tolist()
    return found


def spoken(stage: StageProcess, speeches: Sequence[Speech]) -> list[OutboxMessage]:
    for one in speeches:
        stage.put(*one.messages)
    return stage.until_ended(one.key for one in speeches)


def user_tokens(case: Case) -> list[int]:
    """Return the tokens of a prompt that the talker sees: all but system and the empty answer."""
    ids: list[int] = case.answer.input_ids.tolist()
    turns = [n for n, token in enumerate(ids) if token == ids[0]]
    first = turns[1] if len(turns) > 2 else turns[0]
    return ids[first : turns[-1]]


def first_tokens(speeches: Sequence[Speech]) -> Chunks:
    """Return the first token of each text in one frame, as a step of the thinker sends them."""
    chunks = [one.chunks[-24] for one in speeches]
    tokens = np.concatenate([chunk.frame.columns["token_id"] for chunk in chunks])
    rows = tuple(chunk.frame.rows[0] for chunk in chunks)
    return Chunks(
        "thinker",
        StepFrame("thinker", 0, rows, {"token_id": tokens}),
        tuple(range(len(rows))),
    )


def until(stage: StageProcess, key: RequestKey, count: int) -> list[OutboxMessage]:
    """Return what comes until a request has spoken `count` frames."""
    seen: list[OutboxMessage] = []
    while len(codes_of(seen, key)) < count:
        seen.append(stage.get())
    return seen


@pytest.mark.parametrize("name", NAMES)
def test_frames_are_transformers(name: str, talker: StageProcess, cases: Cases) -> None:
    one = speech(cases[name], f"{name} alone")
    seen = spoken(talker, [one])
    assert codes_of(seen, one.key) == frames(cases[name])
    assert result_of(seen, one.key) == SPOKEN


def test_a_mixed_batch_speaks_as_each_does_alone(talker: StageProcess, cases: Cases) -> None:
    named = {f"{name} {turn}": name for name in NAMES for turn in "ab"}
    speeches = {label: speech(cases[name], f"mixed {label}") for label, name in named.items()}
    seen = spoken(talker, list(speeches.values()))
    for label, name in named.items():
        assert codes_of(seen, speeches[label].key) == frames(cases[name])
    assert max(len(m.keys) for m in seen if isinstance(m, StepOutput)) > 8


@pytest.mark.parametrize("first", ["prompt", "text", "end"])
def test_the_order_in_which_things_come_changes_nothing(
    first: str, talker: StageProcess, cases: Cases
) -> None:
    one = speech(cases["image"], f"{first} first")
    prompt = NewRequest(one.payload)
    orders: dict[str, list[InboxMessage]] = {
        "prompt": [prompt, *one.chunks, one.done],
        "text": [*one.chunks[:5], prompt, *one.chunks[5:], one.done],
        "end": [*one.chunks, one.done, prompt],
    }
    for message in orders[first]:
        talker.put(message)
    seen = talker.until_ended([one.key])
    assert codes_of(seen, one.key) == frames(cases["image"])


@pytest.mark.parametrize("start", [1, 3, 5, None])
def test_speech_starts_with_enough_text_and_then_says_the_same(
    start: int | None, talker: StageProcess, cases: Cases
) -> None:
    previous = talker.ask(_Pacing(start))
    one = speech(cases["audio"], f"start {start}")
    media = len(one.chunks) - 24
    wanted = 24 if start is None else start
    talker.put(NewRequest(one.payload), *one.chunks[: media + wanted - 1])
    # A neighbour needs as many steps as this one would have needed to say something.
    other = speech(cases["text"], f"beside start {start}")
    assert not codes_of(spoken(talker, [other]), one.key)
    talker.put(*one.chunks[media + wanted - 1 :], one.done)
    seen = talker.until_ended([one.key])
    assert codes_of(seen, one.key) == frames(cases["audio"])
    talker.ask(_Pacing(previous))


@pytest.mark.parametrize("name", ["text", "mixed"])
def test_all_rows_but_the_last_are_read_before_the_first_token(
    name: str, talker: StageProcess, cases: Cases
) -> None:
    start = counters(talker)
    one = speech(cases[name], f"early {name}")
    media, texts = one.chunks[:-24], one.chunks[-24:]
    talker.put(NewRequest(one.payload), *media)
    while (now := counters(talker)).held != 1:
        pass
    # All of the user's turn and nine rows of the answer, of which the last is awaited.
    user_rows = len(user_tokens(cases[name]))
    assert start.tokens_free - now.tokens_free == user_rows + HEAD_ROWS - 1
    read = talker.ask(_step)
    talker.put(*texts, one.done)
    seen = talker.until_ended([one.key])
    # The first token costs one step, whatever the length of the prompt.
    assert steps_of(seen, one.key) == list(range(read + 1, read + 25))
    assert codes_of(seen, one.key) == frames(cases[name])


@pytest.mark.parametrize("count", [1, 16])
def test_the_first_frame_comes_one_step_after_the_first_token(
    count: int, talker: StageProcess, cases: Cases
) -> None:
    speeches = [speech(cases[NAMES[n % len(NAMES)]], f"{n} of {count}") for n in range(count)]
    for one in speeches:
        talker.put(NewRequest(one.payload), *one.chunks[:-24])
    while counters(talker).held != count:
        pass
    read = talker.ask(_step)
    talker.put(first_tokens(speeches))
    seen: list[OutboxMessage] = []
    while any(len(codes_of(seen, one.key)) < 1 for one in speeches):
        seen.append(talker.get())
    spoken_in = [message for message in seen if isinstance(message, StepOutput)]
    assert [(message.step, len(message.keys)) for message in spoken_in] == [(read + 1, count)]
    for one in speeches:
        talker.put(*one.chunks[-23:], one.done)
    seen += talker.until_ended(one.key for one in speeches)
    for number, one in enumerate(speeches):
        assert codes_of(seen, one.key) == frames(cases[NAMES[number % len(NAMES)]])
        assert result_of(seen, one.key) == SPOKEN


def test_a_row_without_text_waits_alone(talker: StageProcess, cases: Cases) -> None:
    dry = speech(cases["video"], "dry")
    media = len(dry.chunks) - 24
    talker.put(NewRequest(dry.payload), *dry.chunks[: media + 4])
    # The first token fills the prompt, the others one frame each; the frame after waits.
    seen = until(talker, dry.key, 4)
    wet = speech(cases["turns"], "wet")
    seen += spoken(talker, [wet])
    assert codes_of(seen, wet.key) == frames(cases["turns"])
    assert codes_of(seen, dry.key) == frames(cases["video"])[:4]
    wet_steps = steps_of(seen, wet.key)
    assert wet_steps == list(range(wet_steps[0], wet_steps[0] + 24))
    assert wait_until_occupied(talker, 1) == 1
    talker.put(*dry.chunks[media + 4 :], dry.done)
    seen += talker.until_ended([dry.key])
    assert codes_of(seen, dry.key) == frames(cases["video"])


def test_a_stalled_reader_holds_its_own_row(talker: StageProcess, cases: Cases) -> None:
    # Far more frames than are spoken until the stall arrives.
    slow = speech(cases["mixed"], "slow", talker_max_tokens=150)
    quick = speech(cases["image"], "quick")
    talker.put(*slow.messages)
    seen = until(talker, slow.key, 2)
    talker.put(Stall(slow.key), *quick.messages)
    seen += talker.until_ended([quick.key])
    assert codes_of(seen, quick.key) == frames(cases["image"])
    held = len(codes_of(seen, slow.key))
    talker.put(Resume(slow.key))
    seen += talker.until_ended([slow.key])
    said = codes_of(seen, slow.key)
    assert held < len(said) == 150
    assert said[:24] == frames(cases["mixed"])


@pytest.mark.filterwarnings("ignore:Passing .repetition_penalty. with .inputs_embeds.")
def test_the_repetition_penalty_is_transformers(
    talker: StageProcess, cases: Cases, oracle: Oracle
) -> None:
    judged = oracle.answer(PROMPTS["image"], Settings(max_frames=60, repetition_penalty=1.05))
    one = speech(cases["image"], "penalty", talker_repetition_penalty=1.05, talker_max_tokens=60)
    seen = spoken(talker, [one, speech(cases["text"], "beside the penalty")])
    assert codes_of(seen, one.key) == judged.codes.T.tolist()


def test_another_speaker_says_it_otherwise(
    talker: StageProcess, cases: Cases, oracle: Oracle
) -> None:
    judged = oracle.answer(PROMPTS["text"], Settings(speaker="Chelsie"))
    one = speech(cases["text"], "chelsie", speaker="Chelsie")
    seen = spoken(talker, [one])
    assert codes_of(seen, one.key) == judged.codes.T.tolist() != frames(cases["text"])


def test_an_unknown_speaker_is_refused_by_name(talker: StageProcess, cases: Cases) -> None:
    start = counters(talker)
    one = speech(cases["text"], "nobody", speaker="nobody")
    seen = spoken(talker, [one])
    (error,) = [m.error for m in seen if isinstance(m, RequestError)]
    assert isinstance(error, InvalidRequest)
    assert "chelsie, ethan" in str(error)
    assert wait_until_free(talker, start) == start


def test_a_seed_gives_the_same_speech_alone_and_in_a_batch(
    talker: StageProcess, cases: Cases
) -> None:
    drawn: dict[str, Tree] = {"talker_temperature": 0.9, "seed": 5}
    alone = speech(cases["image"], "seed alone", **drawn)
    said = codes_of(spoken(talker, [alone]), alone.key)
    again = speech(cases["image"], "seed again", **drawn)
    batch = [
        again,
        speech(cases["image"], "other seed", **(drawn | {"seed": 6})),
        speech(cases["image"], "no seed", talker_temperature=0.9),
        speech(cases["text"], "greedy"),
    ]
    together = spoken(talker, batch)
    assert codes_of(together, again.key) == said
    assert codes_of(together, batch[1].key) != said
    assert codes_of(together, batch[2].key) != said
    assert codes_of(together, batch[3].key) == frames(cases["text"])
    assert len({tuple(frame) for frame in said}) > 15


@pytest.mark.parametrize("tokens", [0, 1])
def test_an_answer_of_hardly_any_text(tokens: int, talker: StageProcess, cases: Cases) -> None:
    start = counters(talker)
    one = speech(cases["text"], f"{tokens} tokens")
    one = replace(one, chunks=one.chunks[:tokens])
    seen = spoken(talker, [one])
    result = result_of(seen, one.key)
    if tokens:
        assert result == SPOKEN
        assert codes_of(seen, one.key)[0] == frames(cases["text"])[0]
    else:
        assert result == {"frames": 0, "finish_reason": "no_text", "start_tokens": 0}
        assert not codes_of(seen, one.key)
    assert wait_until_free(talker, start) == start


def test_aborts_free_everything_whatever_the_row_is_doing(
    talker: StageProcess, cases: Cases
) -> None:
    start = counters(talker)
    endless = {"talker_max_tokens": 2000}
    running = speech(cases["text"], "running", **endless)
    dry = speech(cases["image"], "dry row", **endless)
    early = speech(cases["audio"], "prompt only", **endless)
    unmet = speech(cases["video"], "rows awaited", **endless)
    talker.put(*running.messages, NewRequest(dry.payload), *dry.chunks[:-20])
    talker.put(NewRequest(early.payload), *early.chunks[:-24], NewRequest(unmet.payload))
    seen = until(talker, running.key, 30)
    speeches = [running, dry, early, unmet]
    neighbour = speech(cases["turns"], "neighbour")
    aborts = [AbortRequest(one.key, "test") for one in speeches]
    talker.put(*aborts)
    asked = talker.ask(_step)
    talker.put(*neighbour.messages)
    seen += talker.until_ended([one.key for one in [*speeches, neighbour]])
    # A step that was under way may end; nothing is said after it.
    assert all(step <= asked + 1 for one in speeches for step in steps_of(seen, one.key))
    assert {m.key for m in seen if isinstance(m, Aborted)} == {one.key for one in speeches}
    assert codes_of(seen, neighbour.key) == frames(cases["turns"])
    assert wait_until_free(talker, start) == start


def test_rows_that_fit_no_place_fail_their_request_alone(
    talker: StageProcess, cases: Cases
) -> None:
    bad = speech(cases["image"], "too many rows")
    case = replace(cases["image"], hidden=cases["image"].hidden.repeat(2, 1))
    bad = replace(bad, chunks=talker_input(bad.key, [5], case.hidden))
    narrow = speech(cases["image"], "narrow rows")
    narrow = replace(narrow, chunks=talker_input(narrow.key, [5], case.hidden[:, :3]))
    good = speech(cases["audio"], "good")
    seen = spoken(talker, [bad, narrow, good])
    assert {m.key for m in seen if isinstance(m, RequestError)} == {bad.key, narrow.key}
    assert codes_of(seen, good.key) == frames(cases["audio"])


def _step(scheduler: Any) -> int:
    step: int = scheduler.step
    return step


@dataclass(frozen=True)
class _Pacing:
    """Sets how much text starts speech, and returns what was set before."""

    start_tokens: int | None

    def __call__(self, scheduler: Any) -> int | None:
        program = scheduler.program
        before: int | None = program.pacing.start_tokens
        program.pacing = replace(program.pacing, start_tokens=self.start_tokens)
        return before
