"""Which payloads are awaited, and that they are merged once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import pytest

from omni_runtime.fan_in import FanIn, FanInError, FanInRule
from omni_wire.identity import RequestKey
from omni_wire.messages import Payload
from tests.support.stage_events import payload

SOURCES = ("first", "left", "right")


def merge(payloads: Mapping[str, Payload]) -> Payload:
    return payload(data={source: it.data for source, it in payloads.items()})


def answer_of_first(key: RequestKey, source: str, it: Payload) -> Any:
    """Only the payload of `first` knows who else comes."""
    return it.data if source == "first" else None


@pytest.mark.parametrize("order", list(permutations(SOURCES)))
def test_all_orders_give_the_same_merge(order: tuple[str, ...]) -> None:
    fan_in = FanIn(FanInRule(SOURCES, merge_fn=merge))
    merged = [fan_in.add(source, payload(data=source)) for source in order]
    assert merged[:2] == [None, None]
    assert merged[2] is not None
    assert list(merged[2].data.items()) == [(source, source) for source in SOURCES]  # type: ignore[union-attr]


@pytest.mark.parametrize("order", list(permutations(("first", "left"))))
def test_the_awaited_sources_may_become_known_late(order: tuple[str, ...]) -> None:
    fan_in = FanIn(FanInRule(SOURCES, answer_of_first, merge))
    merged = [fan_in.add(source, payload(data=("first", "left"))) for source in order]
    assert merged[0] is None
    assert merged[1] is not None
    assert fan_in.complete


def test_without_wait_for_the_first_payload_is_the_one() -> None:
    fan_in = FanIn(FanInRule())
    only = payload()
    assert fan_in.add("anyone", only) is only


@pytest.mark.parametrize(
    ("rule", "arrivals", "problem"),
    [
        pytest.param(FanInRule(("a",), merge_fn=merge), ["b"], "waits for", id="stranger"),
        pytest.param(FanInRule(("a", "b"), merge_fn=merge), ["a", "a"], "second", id="twice"),
        pytest.param(FanInRule(), ["a", "b"], "second", id="second without wait_for"),
        pytest.param(
            FanInRule(SOURCES, lambda *_: {"first", "left"}, merge),
            ["first", "right"],
            "waits for",
            id="not expected for this request",
        ),
        pytest.param(
            FanInRule(SOURCES, lambda *_: {"first"}, merge),
            ["right"],
            "waits for",
            id="came before it was known to be unexpected",
        ),
        pytest.param(
            FanInRule(("a",), lambda *_: {"x"}, merge), ["a"], "subset", id="unknown expected"
        ),
        pytest.param(
            FanInRule(("a",), lambda *_: set(), merge), ["a"], "non-empty", id="nobody expected"
        ),
    ],
)
def test_what_does_not_fit_is_an_error(rule: FanInRule, arrivals: list[str], problem: str) -> None:
    fan_in = FanIn(rule)
    for source in arrivals[:-1]:
        fan_in.add(source, payload())
    with pytest.raises(FanInError, match=problem):
        fan_in.add(arrivals[-1], payload())
