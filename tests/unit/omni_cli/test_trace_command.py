"""`omni trace` draws what a gateway remembers of its requests."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from omni_cli.output import Line
from omni_cli.trace_command import LANE, duration, timeline_lines
from tests.support.command_line import omni
from tests.support.fake_gateway_http import FakeGateway, fake_gateway


@pytest.fixture(scope="module")
def gateway() -> Iterator[FakeGateway]:
    with fake_gateway() as served:
        yield served


def drawn(lines: Iterator[Line]) -> list[str]:
    return ["".join(span.text for span in spans) for spans in lines]


def test_a_lane_shows_when_a_stage_waited_and_worked() -> None:
    stage = {"stage": "thinker", "instance": "thinker@r1"}
    timeline = {
        "request_id": "a",
        "status": "completed",
        "seconds": 4.0,
        "stages": [{**stage, "opened": 1.0, "first_output": 2.0, "finished": 3.0}],
    }
    headline, _, lane = drawn(timeline_lines(timeline, unicode=False))
    quarter = LANE // 4
    assert headline == "a  completed after 4.00 s"
    marks = "." * quarter + "-" * quarter + "#" * quarter + "." * quarter
    assert lane == f"  thinker@r1  {marks}    2.00 s  from 1.00 s to 3.00 s"


def test_however_short_a_stage_shows() -> None:
    times = {"opened": 5.0, "first_output": None, "finished": 5.0}
    stages = [{"stage": "s", "instance": "s", **times}]
    timeline = {"request_id": "a", "status": "completed", "seconds": 5.0, "stages": stages}
    lane = drawn(timeline_lines(timeline, unicode=False))[2].split()[1]
    assert (len(lane), lane[-1]) == (LANE, "#")


def test_a_request_that_told_nothing_says_so() -> None:
    failed = {"request_id": "a", "status": "failed", "reason": "STAGE_FAILED", "seconds": 0.5}
    assert drawn(timeline_lines({**failed, "stages": []})) == [
        "a  failed after 500.0 ms (STAGE_FAILED)",
        "  no stage has told its times",
    ]


def test_a_gateway_is_asked(gateway: FakeGateway) -> None:
    shown = omni("trace", "request-1", "--gateway", gateway.address)
    assert shown.status == 0, shown.stderr
    assert shown.stdout.startswith("request-1  completed after 1.99 s\n")
    assert shown.stdout.count("\n") == 10
    asked = omni("trace", "request-1", "--gateway", gateway.address, "-o", "json")
    assert json.loads(asked.stdout)["stages"][0]["stage"] == "preprocessing"


def test_what_the_gateway_refuses_is_told(gateway: FakeGateway) -> None:
    shown = omni("trace", "forgotten", "--gateway", gateway.address)
    assert (shown.status, shown.stderr) == (1, "Error: no such request\n")


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "127.0.0.1:8000", "http://[::1"])
def test_an_address_without_a_gateway_is_told(address: str) -> None:
    shown = omni("trace", "a", "--gateway", address)
    assert shown.status == 1
    assert shown.stderr.startswith("Error: ")
    assert address in shown.stderr


def test_durations() -> None:
    texts = [duration(seconds) for seconds in (0.0004, 0.25, 12)]
    assert texts == ["0.4 ms", "250.0 ms", "12.00 s"]
