"""Where results, stream ends and rows may go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from omni_runtime.routing import Routes, RoutingError
from tests.support.stage_events import payload

NEXT = ("left", "right")


def routes(answer: Any, **more: Any) -> Routes:
    return Routes(next=NEXT, route_fn=lambda _: answer, **more)


@pytest.mark.parametrize(
    ("answer", "targets"),
    [
        pytest.param("left", ["left"], id="one name"),
        pytest.param(["right", "left"], ["left", "right"], id="declaration order"),
        pytest.param({"right": payload("b")}, ["right"], id="a payload of its own"),
    ],
)
def test_a_route_chooses_among_next(answer: Any, targets: list[str]) -> None:
    assert [target for target, _ in routes(answer).payloads(payload())] == targets


def test_without_a_route_everybody_gets_it() -> None:
    assert [target for target, _ in Routes(next=NEXT).payloads(payload())] == list(NEXT)


@pytest.mark.parametrize("answer", [[], "nowhere", ["left", "nowhere"]])
def test_a_route_outside_next_is_an_error(answer: Any) -> None:
    with pytest.raises(RoutingError, match="route_fn"):
        routes(answer).payloads(payload())


def test_projections_trim_per_target() -> None:
    trimming = Routes(next=NEXT, project_payload={"left": lambda it: replace(it, data="trimmed")})
    sent = dict(trimming.payloads(payload(data="whole")))
    assert (sent["left"].data, sent["right"].data) == ("trimmed", "whole")


def test_stream_ends_go_to_the_chosen_readers() -> None:
    assert Routes(next=NEXT, stream_to=NEXT).done_targets(payload()) == NEXT
    choosing = Routes(next=NEXT, stream_to=NEXT, stream_done_to_fn=lambda _: ["right"])
    assert choosing.done_targets(payload()) == ("right",)
    wrong = Routes(next=NEXT, stream_to=("left",), stream_done_to_fn=lambda _: ["right"])
    with pytest.raises(RoutingError, match="stream_done_to_fn"):
        wrong.done_targets(payload())


@pytest.mark.parametrize(
    ("made", "target", "allowed"),
    [
        pytest.param(Routes(), None, True, id="a terminal speaks to the client"),
        pytest.param(Routes(next=NEXT), None, False, id="nobody else does"),
        pytest.param(Routes(next=NEXT, stream_to=("left",)), "left", True, id="declared"),
        pytest.param(Routes(next=NEXT, stream_to=("left",)), "right", False, id="undeclared"),
    ],
)
def test_rows_need_a_declared_reader(made: Routes, target: str | None, allowed: bool) -> None:
    if allowed:
        made.require_stream_target(target)
        return
    with pytest.raises(RoutingError):
        made.require_stream_target(target)
