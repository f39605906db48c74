"""Draws: reproducible by seed, independent of neighbours, distributed as transformers' are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from omni_runtime.sglang_bridge.seeded_draw import DrawOptions, draw, gumbel

VOCABULARY = 50


def options(
    rows: int,
    *,
    temperature: float = 1.0,
    top_k: int = VOCABULARY,
    top_p: float = 1.0,
    min_p: float = 0.0,
    greedy: bool = False,
    seeds: Sequence[int] | None = None,
) -> DrawOptions:
    return DrawOptions(
        temperature=torch.full((rows,), temperature),
        top_k=torch.full((rows,), top_k),
        top_p=torch.full((rows,), top_p),
        min_p=torch.full((rows,), min_p),
        greedy=torch.full((rows,), greedy),
        seed=torch.tensor(seeds or [0] * rows),
        most_top_k=top_k,
    )


def logits(rows: int = 1, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 2


def test_a_row_draws_the_same_alone_and_among_others() -> None:
    rows, seeds = logits(8), [7, -1, 3, 2**62, 0, 9, 7, 1]
    positions = torch.arange(8) + 20
    together = draw(rows, options(8, seeds=seeds), positions)
    alone = [
        draw(rows[i : i + 1], options(1, seeds=[seeds[i]]), positions[i : i + 1]).item()
        for i in range(8)
    ]
    assert together.tolist() == alone


def test_a_row_draws_the_same_whatever_its_neighbours_filter() -> None:
    rows = logits(1).expand(2, -1).contiguous()
    mixed = options(2, seeds=[5, 5])
    narrow = DrawOptions(**{**_fields(mixed), "top_k": torch.tensor([4, VOCABULARY])})
    alone = draw(rows[:1], options(1, top_k=4, seeds=[5]), torch.tensor([3]))
    assert draw(rows, narrow, torch.tensor([3, 3]))[0] == alone[0]


def test_seed_and_position_both_change_the_draw() -> None:
    rows = logits(1).expand(200, -1).contiguous()
    by_seed = draw(rows, options(200, seeds=range(200)), torch.zeros(200, dtype=torch.int64))
    by_position = draw(rows, options(200), torch.arange(200))
    assert len(set(by_seed.tolist())) > 10
    assert len(set(by_position.tolist())) > 10
    assert by_seed.tolist() != by_position.tolist()


@pytest.mark.parametrize(
    "filters",
    [
        pytest.param({}, id="all"),
        pytest.param({"temperature": 0.5}, id="temperature"),
        pytest.param({"top_k": 5}, id="top k"),
        pytest.param({"top_p": 0.7}, id="top p"),
        pytest.param({"min_p": 0.1}, id="min p"),
        pytest.param({"temperature": 0.9, "top_k": 20, "top_p": 0.8, "min_p": 0.02}, id="together"),
    ],
)
def test_frequencies_are_those_of_transformers_warpers(filters: dict[str, Any]) -> None:
    count, row = 20_000, logits(1, seed=4)
    drawn = draw(row.expand(count, -1).contiguous(), options(count, **filters), torch.arange(count))
    found = torch.bincount(drawn, minlength=VOCABULARY) / count
    wanted = _warped(row, filters).softmax(-1)[0]
    assert (found[wanted == 0] == 0).all()
    assert (found - wanted).abs().max() < 0.015


def test_greedy_rows_take_the_likeliest() -> None:
    rows = logits(4)
    assert draw(rows, options(4, greedy=True), torch.arange(4)).tolist() == (
        rows.argmax(-1).tolist()
    )


def test_a_forbidden_token_is_never_drawn() -> None:
    row = torch.full((1, VOCABULARY), -torch.inf)
    row[0, 11] = 0.0
    assert draw(row, options(1), torch.tensor([0])).tolist() == [11]


def test_noise_belongs_to_the_candidate_and_not_to_its_place() -> None:
    seed, position = torch.tensor([3]), torch.tensor([9])
    candidates = torch.arange(10)[None]
    noise = gumbel(seed, position, candidates)
    assert torch.equal(gumbel(seed, position, candidates.flip(-1)), noise.flip(-1))
    assert torch.isfinite(noise).all()


def _fields(made: DrawOptions) -> dict[str, object]:
    return {name: getattr(made, name) for name in DrawOptions.__slots__}


def _warped(row: torch.Tensor, filters: dict[str, Any]) -> torch.Tensor:
    from transformers.generation import logits_process as warpers

    scores = row / filters.get("temperature", 1.0)
    if "top_k" in filters:
        scores = warpers.TopKLogitsWarper(int(filters["top_k"]))(None, scores)
    if "top_p" in filters:
        scores = warpers.TopPLogitsWarper(filters["top_p"])(None, scores)
    if "min_p" in filters:
        scores = warpers.MinPLogitsWarper(filters["min_p"])(None, scores)
    return scores
