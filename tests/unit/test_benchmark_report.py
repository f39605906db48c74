"""Benchmarks compare fairly and report in one shape."""

import json
from collections.abc import Iterator

import pytest

from benchmarks.report import Bar, Ratios, alternate, count, main, parse, table

MET = Bar("planning", 2.5, (2.0, 3.0), "<= 10x", True, "resolve against json.dumps")
MISSED = Bar("memory", 12.0, (12.0, 12.0), "<= 10", False, "counted")


def test_candidate_and_baseline_take_turns_and_share_who_goes_first() -> None:
    calls: list[str] = []
    ratios = alternate(lambda: calls.append("c"), lambda: calls.append("b"), rounds=4)
    assert "".join(calls) == "cb" + "cb" + "bc" + "cb" + "bc"
    assert len(ratios.rounds) == 4


@pytest.mark.parametrize(("limit", "ok"), [(2.0, True), (1.9, False)])
def test_the_median_decides_and_the_range_is_shown(limit: float, ok: bool) -> None:
    bar = Ratios((1.0, 2.0, 9.0)).at_most(limit, bar="x", method="a against b")
    assert (bar.value, bar.range, bar.ok) == (2.0, (1.0, 9.0), ok)
    assert bar.method == "a against b; median of 3 alternating rounds"


def test_a_count_has_no_range() -> None:
    assert count(3, 2, bar="copies", method="counted").range == (3, 3)


@pytest.mark.parametrize(("bars", "status"), [([MET], 0), ([MET, MISSED], 1)])
def test_json_lines_carry_every_bar(
    bars: list[Bar], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure() -> Iterator[Bar]:
        yield from bars

    assert main(measure, ["--json"]) == status
    printed = capsys.readouterr().out
    assert parse(printed) == bars
    assert list(json.loads(printed.splitlines()[0])) == [
        *("bar", "value", "range", "goal", "ok", "method")
    ]


def test_the_table_marks_what_was_missed() -> None:
    head, met, missed = table([MET, MISSED]).splitlines()
    assert head.split() == ["bar", "value", "range", "goal", "method"]
    assert met.startswith("ok ")
    assert missed.startswith("MISSED ")
