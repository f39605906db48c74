"""The thinker on two tensor-parallel ranks: transformers' tokens, on each, and nothing left."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omni_runtime.scheduler import Aborted, AbortRequest, NewRequest, RequestError
from tests.support.prompts import PROMPTS
from tests.support.ranks import start_ranks, stop_ranks
from tests.support.speech_stages import counters, renamed, tokens_of, wait_until_free
from tests.support.stage_process import StageProcess

if TYPE_CHECKING:
    from tests.integration.qwen3_omni.conftest import Case

pytestmark = [pytest.mark.parity, pytest.mark.timeout(400)]

Cases = Mapping[str, "Case"]


@pytest.fixture(scope="module")
def ranks(checkpoint: Path) -> Iterator[list[StageProcess]]:
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        started = start_ranks(checkpoint, Path(folder))
        yield started
        stop_ranks(started)


@pytest.mark.parametrize("name", ["text", "mixed"])
def test_each_rank_says_what_transformers_says(
    name: str, ranks: list[StageProcess], cases: Cases
) -> None:
    payload = renamed(cases[name].payload, f"{name} on ranks")
    ranks[0].put(NewRequest(payload))
    for rank in ranks:
        said = rank.until_ended([payload.key])
        assert tokens_of(said, payload.key, "decode") == cases[name].answer.text_ids.tolist()


def test_a_batch_with_aborts_leaves_nothing_on_any_rank(
    ranks: list[StageProcess], cases: Cases
) -> None:
    start = [counters(rank) for rank in ranks]
    batch = {name: renamed(cases[name].payload, f"{name} in batch") for name in PROMPTS}
    endless = renamed(cases["text"].payload, "endless", max_tokens=2000, ignore_eos=True)
    ranks[0].put(*map(NewRequest, [endless, *batch.values()]))
    keys = [payload.key for payload in batch.values()]
    first = ranks[0].until_ended(keys)
    ranks[0].put(AbortRequest(endless.key, "test"))
    seen = [first + ranks[0].until_ended([endless.key]), ranks[1].until_ended([*keys, endless.key])]
    for said in seen:
        for name, payload in batch.items():
            assert tokens_of(said, payload.key, "decode") == cases[name].answer.text_ids.tolist()
        assert [m.key for m in said if isinstance(m, Aborted | RequestError)] == [endless.key]
    assert [wait_until_free(rank, now) for rank, now in zip(ranks, start, strict=True)] == start


def test_a_seed_draws_alike_on_every_rank(ranks: list[StageProcess], cases: Cases) -> None:
    drawn = renamed(cases["image"].payload, "drawn", temperature=1.0, seed=5)
    unseeded = renamed(cases["text"].payload, "unseeded", temperature=1.0)
    ranks[0].put(NewRequest(drawn), NewRequest(unseeded))
    keys = [drawn.key, unseeded.key]
    seen = [rank.until_ended(keys) for rank in ranks]
    for key in keys:
        assert tokens_of(seen[0], key, "decode") == tokens_of(seen[1], key, "decode") != []
