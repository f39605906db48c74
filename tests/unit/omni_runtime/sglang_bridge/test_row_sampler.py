"""Penalties and seeds per request: right after holds and retractions, and none of SGLang's."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch

from omni_runtime.sglang_bridge.row_sampler import BatchRow, RowSampler
from omni_runtime.sglang_bridge.sampling import Sampling

VOCABULARY = 12
STOPS = frozenset({0})


class Stock:
    """SGLang's sampler, as far as it is called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, logits_output: SimpleNamespace, *_: object, **__: object) -> torch.Tensor:
        self.calls += 1
        return logits_output.next_token_logits.argmax(-1)


def sample(
    sampler: RowSampler,
    logits: torch.Tensor,
    rows: Sequence[BatchRow],
    last_tokens: Sequence[int] = (),
) -> list[int]:
    batch = SimpleNamespace(input_ids=torch.tensor(list(last_tokens) or [0] * len(rows)))
    sampler.begin(batch, rows)
    output = SimpleNamespace(next_token_logits=logits)
    drawn: list[int] = sampler(output, None, False, None, None, torch.zeros(1)).tolist()
    return drawn


def row(name: str, output: Sequence[int], *, lag: int = 0, index: int = 0) -> BatchRow:
    """A row after `output`, of which the last `lag` tokens are not on the host yet."""
    known = list(output)[: len(output) - lag]
    return BatchRow(name, 3, known, 3 + len(output), index)


def flat() -> torch.Tensor:
    """Token 5 leads by a little, then 6, 7, …"""
    logits = torch.zeros(1, VOCABULARY)
    logits[0, 5:] = torch.arange(VOCABULARY - 5, 0, -1) * 0.1 + 1
    return logits


def test_a_plain_batch_goes_to_sglang() -> None:
    stock = Stock()
    sampler = RowSampler(stock)
    sampler.open("a", Sampling(8, temperature=1.0), 1, STOPS, [1, 2, 3])
    sampler.open("b", Sampling(8), 1, STOPS, [1, 2, 3])
    sample(sampler, flat().expand(2, -1), [row("a", []), row("b", [], index=1)])
    assert stock.calls == 1


def test_repetition_penalty_covers_prompt_and_answer_as_transformers_does() -> None:
    from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

    prompt, answer, penalty = [5, 2, 2], [6, 9], 1.9
    sampler = RowSampler(Stock())
    sampler.open("a", Sampling(8, repetition_penalty=penalty), 1, STOPS, prompt)
    logits = flat()
    logits[0, 9] = -1.0
    wanted = RepetitionPenaltyLogitsProcessor(penalty)(
        torch.tensor([prompt + answer]), logits.clone()
    )
    assert sample(sampler, logits, [row("a", answer)]) == wanted.argmax(-1).tolist() == [7]


def test_a_token_that_only_the_device_knows_is_penalised_too() -> None:
    sampler = RowSampler(Stock())
    sampler.open("a", Sampling(8, presence_penalty=2.0), 1, STOPS, [1, 2, 3])
    rows = [row("a", [5], lag=1)]
    assert sample(sampler, flat(), rows, last_tokens=[5]) == [6]
    # A step later the host has caught up by one, and the token is not counted twice.
    assert sample(sampler, flat(), [row("a", [5, 6], lag=1)], last_tokens=[6]) == [7]


def test_a_row_may_be_left_out_of_steps_and_be_penalised_as_if_it_had_not() -> None:
    sampler = RowSampler(Stock())
    sampler.open("a", Sampling(8, frequency_penalty=0.06), 1, STOPS, [1, 2, 3])
    sampler.open("b", Sampling(8, presence_penalty=1.0), 1, STOPS, [1, 2, 3])
    both = [row("a", [5]), row("b", [5], index=1)]
    assert sample(sampler, flat().expand(2, -1).contiguous(), both) == [5, 6]
    assert sample(sampler, flat(), [row("b", [5, 6])]) == [7]
    assert sample(sampler, flat(), [row("a", [5, 5])]) == [6]


def test_a_replayed_row_counts_nothing_twice() -> None:
    sampler = RowSampler(Stock())
    sampler.open("a", Sampling(8, frequency_penalty=0.06), 1, STOPS, [1, 2, 3])
    assert sample(sampler, flat(), [row("a", [5])]) == [5]
    assert sample(sampler, flat(), [row("a", [5])]) == [5]


def test_no_stop_token_comes_before_its_time() -> None:
    sampler = RowSampler(Stock())
    sampler.open("a", Sampling(8, min_tokens=2), 1, STOPS, [1, 2, 3])
    logits = flat()
    logits[0, 0] = 9.0
    assert sample(sampler, logits, [row("a", [5])]) == [5]
    assert sample(sampler, logits, [row("a", [5, 5])]) == [0]


def test_a_seed_gives_the_same_tokens_beside_any_neighbour() -> None:
    logits = torch.randn(3, VOCABULARY, generator=torch.Generator().manual_seed(1))
    sampler = RowSampler(Stock())
    for name, sampling in {
        "a": Sampling(8, temperature=1.0, seed=5),
        "b": Sampling(8, temperature=0.7, top_k=3),
        "c": Sampling(8),
    }.items():
        sampler.open(name, sampling, 99, STOPS, [1, 2, 3])
    alone = sample(sampler, logits[:1], [row("a", [4])])
    rows = [row("a", [4]), row("b", [4, 4], index=1), row("c", [], index=2)]
    together = sample(sampler, logits, rows)
    assert together[0] == alone[0]
    assert together[2] == logits[2].argmax()


def test_the_model_may_edit_logits_first() -> None:
    def only_two(logits: torch.Tensor, rows: Sequence[BatchRow]) -> torch.Tensor:
        edited = torch.full_like(logits, -torch.inf)
        edited[:, 2] = 0.0
        return edited

    sampler = RowSampler(Stock(), only_two)
    sampler.open("a", Sampling(8, temperature=1.0), 1, STOPS, [1, 2, 3])
    assert sample(sampler, flat(), [row("a", [])]) == [2]


def test_a_bias_is_added_once_and_to_its_row_alone() -> None:
    sampler = RowSampler(Stock())
    sampler.open("a", Sampling(8, logit_bias=((9, 3.0), (5, -100.0))), 1, STOPS, [1])
    sampler.open("b", Sampling(8), 1, STOPS, [1])
    rows = [row("a", []), row("b", [], index=1)]
    for _ in range(2):
        assert sample(sampler, flat().expand(2, -1).contiguous(), rows) == [9, 5]


def test_logprobs_are_those_of_the_logits_after_bias_and_before_temperature() -> None:
    sampler = RowSampler(Stock())
    told = Sampling(8, temperature=0.5, seed=3, logit_bias=((9, 1.0),), top_logprobs=2)
    sampler.open("a", told, 1, STOPS, [1])
    sampler.open("b", Sampling(8), 1, STOPS, [1])
    rows = [row("b", []), row("a", [4], index=1)]
    drawn = sample(sampler, flat().expand(2, -1).contiguous(), rows)[1]
    sampler.logprobs.settle()
    biased = flat()[0]
    biased[9] += 1.0
    wanted = biased.log_softmax(-1)
    (found,) = sampler.logprobs.take("a", 1, 2)
    assert found.logprob == pytest.approx(wanted[drawn].item())
    assert [token for token, _ in found.top] == [9, 5]
    assert [value for _, value in found.top] == pytest.approx(wanted[[9, 5]].tolist())
    assert sampler.logprobs.take("b", 0, 1) == ()


def test_what_a_grammar_forbids_is_no_likely_token() -> None:
    sampler = RowSampler(Stock())
    sampler.open("a", Sampling(8, top_logprobs=5), 1, STOPS, [1])
    logits = torch.full((1, VOCABULARY), -torch.inf)
    logits[0, 3] = 2.0
    assert sample(sampler, logits, [row("a", [])]) == [3]
    sampler.logprobs.settle()
    (found,) = sampler.logprobs.take("a", 0, 1)
    assert (found.logprob, found.top) == (0.0, ((3, 0.0),))


def test_a_row_that_ended_before_its_step_was_drawn_changes_nothing_for_the_others() -> None:
    logits = torch.randn(2, VOCABULARY, generator=torch.Generator().manual_seed(1))
    sampler = RowSampler(Stock())
    sampler.open("a", Sampling(8, temperature=1.0, seed=5, top_logprobs=0), 1, STOPS, [1])
    sampler.open("ended", Sampling(8, top_logprobs=0), 1, STOPS, [1])
    alone = sample(sampler, logits[:1], [row("a", [4])])
    sampler.logprobs.settle()
    sampler.close("ended")
    together = sample(sampler, logits, [row("a", [4]), row("ended", [4], index=1)])
    assert together[0] == alone[0]
    sampler.logprobs.settle()
    assert len(sampler.logprobs.take("a", 1, 2)) == 1
    sampler.close("a")
    assert len(sampler.logprobs) == 0


def test_steps_are_settled_in_their_order_whatever_was_drawn_in_between() -> None:
    sampler = RowSampler(Stock())
    sampler.open("a", Sampling(8, top_logprobs=0), 1, STOPS, [1])
    for generated in range(3):
        logits = flat()
        logits[0, 5] += generated
        sample(sampler, logits, [row("a", [5] * generated)])
        # In the middle of a prompt, what is drawn is thrown away.
        sample(sampler, flat(), [BatchRow("a", 3, [], 2, 0)])
    for _ in range(6):
        sampler.logprobs.settle()
    told = sampler.logprobs.take("a", 0, 3)
    assert [one.logprob for one in told] == sorted(one.logprob for one in told)
    assert len({one.logprob for one in told}) == 3


def test_a_closed_request_leaves_nothing() -> None:
    sampler = RowSampler(Stock())
    sampler.open("a", Sampling(8), 1, STOPS, [1])
    sampler.close("a")
    sampler.close("a")
    assert len(sampler) == 0
