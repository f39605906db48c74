"""What a client may set, and what it is told when it may not."""

from __future__ import annotations

import pytest

from omni_models.qwen3_omni.parameters import (
    refuse_unknown,
    speaker_of,
    talker_sampling,
    thinker_sampling,
)
from omni_runtime.sglang_bridge.sampling import Sampling
from omni_wire.errors import InvalidRequest

SPEAKERS = {"chelsie": 301, "ethan": 302}


def test_defaults_are_those_of_generate() -> None:
    assert thinker_sampling({}) == Sampling(max_tokens=2048)
    code = talker_sampling({}).code
    assert (code.temperature, code.top_k, code.top_p) == (0.9, 50, 1.0)
    assert (code.repetition_penalty, code.max_tokens) == (1.05, 4096)


def test_values_are_read() -> None:
    sampling = thinker_sampling(
        {"temperature": 1, "top_k": -1, "stop": "x", "stop_token_ids": [3], "seed": -5}
    )
    assert sampling.temperature == 1.0
    assert sampling.top_k is None
    assert sampling.stop == ("x",)
    assert sampling.stop_token_ids == {3}
    assert sampling.seed == -5
    assert not sampling.greedy


def test_null_is_the_same_as_absent() -> None:
    assert thinker_sampling({"temperature": None, "stop": None}) == thinker_sampling({})


@pytest.mark.parametrize(
    ("params", "rule"),
    [
        ({"temperature": 2.5}, r"temperature must be a number in \[0, 2\], got 2.5"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"temperature": True}, "temperature must be"),
        ({"top_p": 0}, r"top_p must be a number in \(0, 1\]"),
        ({"top_k": 0}, "top_k must be a whole number from 1, or -1 for all"),
        ({"max_tokens": 0}, "max_tokens must be a whole number from 1"),
        ({"max_tokens": 2.0}, "max_tokens must be"),
        ({"max_tokens": 2, "min_tokens": 3}, "min_tokens 3 is above max_tokens 2"),
        ({"stop": ["a", ""]}, "stop must be"),
        ({"stop": ["a"] * 33}, "stop must be"),
        ({"seed": 2**63}, "seed must be a whole number of 64 bits"),
        ({"ignore_eos": 1}, "ignore_eos must be true or false"),
    ],
)
def test_what_is_out_of_range_is_refused_with_the_range(
    params: dict[str, object], rule: str
) -> None:
    with pytest.raises(InvalidRequest, match=rule):
        thinker_sampling(params)


def test_a_speaker_is_found_in_any_case() -> None:
    assert speaker_of({"speaker": "Chelsie"}, SPEAKERS) == 301


def test_the_default_speaker_is_ethan() -> None:
    assert speaker_of({}, SPEAKERS) == 302


def test_an_unknown_speaker_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="unknown speaker 'bob'; accepted are chelsie, ethan"):
        speaker_of({"speaker": "bob"}, SPEAKERS)


def test_an_unknown_parameter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="unknown parameters temprature; accepted are temp"):
        refuse_unknown({"temprature": 1, "seed": 2, "speaker": "x"})
