"""The thinker on SGLang: transformers' tokens, whatever the batch, and nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from omni_runtime.scheduler import (
    Aborted,
    AbortRequest,
    Admitted,
    NewRequest,
    OutboxMessage,
    RequestError,
    Resume,
    Stall,
    StepOutput,
)
from omni_wire.errors import InvalidRequest
from omni_wire.messages import Payload, Tree
from tests.support.encoded_prompts import media_hidden_rows
from tests.support.prompts import PROMPTS
from tests.support.speech_stages import (
    counters,
    media_rows_of,
    renamed,
    result_of,
    start_thinker,
    steps_of,
    tokens_of,
    wait_until_free,
    wait_until_occupied,
)
from tests.support.stage_process import StageProcess

if TYPE_CHECKING:
    from tests.integration.qwen3_omni.conftest import Case
    from tests.support.oracle import Oracle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAMES = list(PROMPTS)
Cases = Mapping[str, "Case"]


@pytest.fixture(scope="module")
def thinker(checkpoint: Path) -> Iterator[StageProcess]:
    stage = start_thinker(checkpoint)
    yield stage
    stage.close()


def answers(stage: StageProcess, payloads: Sequence[Payload]) -> list[OutboxMessage]:
    stage.put(*map(NewRequest, payloads))
    return stage.until_ended(payload.key for payload in payloads)


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_transformers_and_again_from_the_prefix_cache(
    name: str, thinker: StageProcess, cases: Cases
) -> None:
    for turn in ("cold", "cached"):
        payload = renamed(cases[name].payload, f"{name} {turn}")
        said = answers(thinker, [payload])
        result = result_of(said, payload.key)
        assert tokens_of(said, payload.key, "decode") == cases[name].answer.text_ids.tolist()
        assert tokens_of(said, payload.key, "talker_ar") == cases[name].answer.text_ids.tolist()
        assert result["token_ids"].tolist() == cases[name].answer.text_ids.tolist()
        assert result["finish_reason"] == "length"
    # Everything but the last token of the prompt, which has to be computed to answer.
    prompt = len(cases[name].answer.input_ids)
    assert result["usage"]["cached_tokens"] == prompt - 1
    assert result["usage"]["prompt_tokens"] == prompt
    assert result["usage"]["completion_tokens"] == 24


def test_a_mixed_batch_says_what_each_says_alone(thinker: StageProcess, cases: Cases) -> None:
    names = [*NAMES, NAMES[0]]
    payloads = [renamed(cases[name].payload, f"mixed {i}") for i, name in enumerate(names)]
    said = answers(thinker, payloads)
    for name, payload in zip(names, payloads, strict=True):
        assert tokens_of(said, payload.key, "decode") == cases[name].answer.text_ids.tolist()
    together = max(len(m.keys) for m in said if isinstance(m, StepOutput) and m.target == "decode")
    assert together == len(names)


@pytest.mark.parametrize("name", ["image", "turns", "heard video"])
def test_hidden_rows_of_media_are_transformers_also_for_cached_prefixes(
    name: str, thinker: StageProcess, cases: Cases, oracle: Oracle
) -> None:
    wanted = media_hidden_rows(oracle, PROMPTS[name])
    for turn in range(2):
        payload = renamed(cases[name].payload, f"rows {name} {turn}")
        said = answers(thinker, [payload])
        rows = torch.cat(media_rows_of(said, payload.key))
        # Rows of a random model are in the hundreds.
        torch.testing.assert_close(rows, wanted, rtol=1e-4, atol=1e-2)
        # They leave before the first token.
        kinds = ["media_hidden" in m.columns for m in said if isinstance(m, StepOutput)]
        assert kinds == sorted(kinds, reverse=True)


@pytest.mark.parametrize("count", [1, 16])
def test_the_talker_gets_its_first_token_with_the_prefill(
    count: int, thinker: StageProcess, cases: Cases
) -> None:
    payloads = [
        renamed(cases[NAMES[number % len(NAMES)]].payload, f"{number} of {count}")
        for number in range(count)
    ]
    begun = thinker.ask(_step)
    said = answers(thinker, payloads)
    for payload in payloads:
        frames = [m for m in said if isinstance(m, StepOutput) and payload.key in m.keys]
        tokens = [m for m in frames if "token_id" in m.columns]
        to_talker = [m.step for m in tokens if m.target == "talker_ar"]
        assert to_talker == [m.step for m in tokens if m.target == "decode"]
        assert len(to_talker) == 24
        rows = [m.step for m in frames if "media_hidden" in m.columns]
        assert set(rows) <= {to_talker[0]}
    # Nobody decodes while somebody has yet to be read: first tokens come in the first steps.
    firsts = {min(steps_of(said, payload.key)) for payload in payloads}
    assert max(firsts) - begun == len(firsts)


def test_a_text_request_sends_nothing_to_the_talker(thinker: StageProcess, cases: Cases) -> None:
    payload = renamed(cases["image"].payload, "text only")
    assert payload.request is not None
    view = replace(payload.request, metadata={"output_modalities": ["text"]})
    said = answers(thinker, [replace(payload, request=view)])
    assert tokens_of(said, payload.key, "decode") == cases["image"].answer.text_ids.tolist()
    assert not [m for m in said if isinstance(m, StepOutput) and m.target == "talker_ar"]


def test_a_seed_gives_the_same_tokens_alone_and_in_a_batch(
    thinker: StageProcess, cases: Cases
) -> None:
    drawn = {"temperature": 1.0, "top_p": 0.95, "seed": 11}
    alone = renamed(cases["image"].payload, "seed alone", **drawn)
    said = tokens_of(answers(thinker, [alone]), alone.key, "decode")
    batch = [
        renamed(cases["image"].payload, "seed in batch", **drawn),
        renamed(cases["image"].payload, "another seed", **(drawn | {"seed": 12})),
        renamed(cases["image"].payload, "unseeded", temperature=1.0),
        renamed(cases["text"].payload, "greedy"),
    ]
    together = answers(thinker, batch)
    texts = [tokens_of(together, payload.key, "decode") for payload in batch]
    assert texts[0] == said
    assert said not in texts[1:3]
    assert texts[3] == cases["text"].answer.text_ids.tolist()


def test_repetition_penalty_is_transformers(
    thinker: StageProcess, cases: Cases, oracle: Oracle
) -> None:
    inputs = oracle.inputs(PROMPTS["text"])
    wanted = oracle.model.thinker.generate(
        **inputs,
        max_new_tokens=24,
        do_sample=False,
        repetition_penalty=1.3,
        eos_token_id=oracle.model.config.im_end_token_id,
    )[0, inputs["input_ids"].shape[1] :]
    payload = renamed(cases["text"].payload, "penalty", repetition_penalty=1.3)
    said = answers(thinker, [payload, renamed(cases["image"].payload, "beside the penalty")])
    assert tokens_of(said, payload.key, "decode") == wanted.tolist()
    assert wanted.tolist() != cases["text"].answer.text_ids.tolist()


def test_a_stop_token_ends_the_answer_and_is_not_part_of_it(
    thinker: StageProcess, cases: Cases
) -> None:
    answer = cases["audio"].answer.text_ids.tolist()
    payload = renamed(cases["audio"].payload, "stop token", stop_token_ids=[answer[6]])
    said = answers(thinker, [payload])
    result = result_of(said, payload.key)
    assert tokens_of(said, payload.key, "decode") == answer[: answer.index(answer[6])]
    assert (result["finish_reason"], result["stop_token_id"]) == ("stop", answer[6])
    assert result["token_ids"].tolist() == answer[: answer.index(answer[6]) + 1]


def test_a_stop_text_ends_the_answer(thinker: StageProcess, cases: Cases, oracle: Oracle) -> None:
    answer = cases["video"].answer.text_ids.tolist()
    text = oracle.processor.tokenizer.decode(answer[8:10])
    payload = renamed(cases["video"].payload, "stop text", stop=[text])
    result = result_of(answers(thinker, [payload]), payload.key)
    assert (result["finish_reason"], result["stop_string"]) == ("stop", text)
    assert result["token_ids"].tolist() == answer[:10]


def test_a_stalled_row_waits_alone(thinker: StageProcess, cases: Cases) -> None:
    slow = renamed(cases["mixed"].payload, "slow reader", max_tokens=400, ignore_eos=True)
    quick = renamed(cases["turns"].payload, "quick reader")
    thinker.put(NewRequest(slow))
    seen = [thinker.get()]
    while not tokens_of(seen, slow.key, "decode"):
        seen.append(thinker.get())
    thinker.put(Stall(slow.key), NewRequest(quick))
    seen += thinker.until_ended([quick.key])
    assert tokens_of(seen, quick.key, "decode") == cases["turns"].answer.text_ids.tolist()
    # From the stall on only the other row moves, in its own pace: one step per token.
    quick_steps = sorted(set(steps_of(seen, quick.key)))
    assert not set(steps_of(seen, slow.key)) & set(quick_steps[1:])
    assert quick_steps == list(range(quick_steps[0], quick_steps[0] + 24))
    assert wait_until_occupied(thinker, 1) == 1
    thinker.put(Resume(slow.key))
    seen += thinker.until_ended([slow.key])
    told = tokens_of(seen, slow.key, "decode")
    assert told[:24] == cases["mixed"].answer.text_ids.tolist()
    assert len(told) == 400


def test_aborts_free_everything_whatever_the_row_is_doing(
    thinker: StageProcess, cases: Cases
) -> None:
    start = counters(thinker)
    endless = {"max_tokens": 2000, "ignore_eos": True}
    running = renamed(cases["image"].payload, "running", **endless)
    held = renamed(cases["audio"].payload, "held", **endless)
    thinker.put(NewRequest(running), NewRequest(held))
    seen = [thinker.get()]
    while not tokens_of(seen, held.key, "decode"):
        seen.append(thinker.get())
    unstarted = renamed(cases["text"].payload, "unstarted", **endless)
    neighbour = renamed(cases["video"].payload, "neighbour")
    thinker.put(
        Stall(held.key),
        NewRequest(neighbour),
        NewRequest(unstarted),
        AbortRequest(unstarted.key, "test"),
    )
    thinker.put(AbortRequest(held.key, "test"), AbortRequest(running.key, "test"))
    asked = thinker.ask(_step)
    gone = [running.key, held.key, unstarted.key]
    seen += thinker.until_ended([*gone, neighbour.key])
    # A step that was under way may end; nothing is said after it.
    assert all(step <= asked + 1 for key in gone for step in steps_of(seen, key))
    ends = {m.key: type(m) for m in seen if isinstance(m, Aborted | RequestError)}
    assert ends == dict.fromkeys(gone, Aborted)
    assert tokens_of(seen, neighbour.key, "decode") == cases["video"].answer.text_ids.tolist()
    for key in gone:
        after = seen[[isinstance(m, Aborted) and m.key == key for m in seen].index(True) + 1 :]
        assert not steps_of(after, key)
    assert wait_until_free(thinker, start) == start


def test_what_makes_no_sense_fails_alone(thinker: StageProcess, cases: Cases) -> None:
    start = counters(thinker)
    good = renamed(cases["text"].payload, "good")
    bad = {
        "hot": renamed(cases["text"].payload, "hot", temperature=9),
        "long": _with(cases["text"].payload, "long", prompt={"input_ids": [5] * 5000}),
        "outside": _with(cases["text"].payload, "outside", prompt={"input_ids": [10**6]}),
        "bare": _with(cases["image"].payload, "bare", embeddings={}),
        "short": _with(cases["image"].payload, "short", embeddings={"image": torch.zeros(5, 256)}),
    }
    thinker.put(*map(NewRequest, [*bad.values(), good]))
    seen = thinker.until_ended([good.key, *(payload.key for payload in bad.values())])
    errors = {m.key.request_id: m.error for m in seen if isinstance(m, RequestError)}
    assert errors.keys() == bad.keys()
    assert {type(error) for error in errors.values()} == {InvalidRequest}
    assert tokens_of(seen, good.key, "decode") == cases["text"].answer.text_ids.tolist()
    admitted = [m.key for m in seen if isinstance(m, Admitted)]
    assert good.key in admitted
    assert wait_until_free(thinker, start) == start


def _step(scheduler: Any) -> int:
    step: int = scheduler.step
    return step


def _with(payload: Payload, name: str, **parts: Tree) -> Payload:
    assert isinstance(payload.data, dict)
    return replace(renamed(payload, name), data={**payload.data, **parts})
