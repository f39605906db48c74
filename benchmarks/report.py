"""The shape in which every benchmark reports, and the one way in which they compare.

A bar is a promise with a number. Absolute times mean little on a shared machine, so bars are
ratios of two things measured in one run, in alternating rounds that meet the same disturbances.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """One measured promise: a line of `--json` output and a row of the table."""

    bar: str
    value: float
    range: tuple[float, float]
    goal: str
    ok: bool
    method: str


@dataclass(frozen=True, slots=True)
class Ratios:
    """What alternating rounds gave: candidate over baseline, smaller is better."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def range(self) -> tuple[float, float]:
        return min(self.rounds), max(self.rounds)

    def at_most(self, limit: float, *, bar: str, method: str) -> Bar:
        """A bar that asks for a median ratio of `limit` or less."""
        return self._bar(bar, f"<= {limit:g}x", self.median <= limit, method)

    def at_least(self, limit: float, *, bar: str, method: str) -> Bar:
        """A bar that asks for a median ratio of `limit` or more."""
        return self._bar(bar, f">= {limit:g}x", self.median >= limit, method)

    def _bar(self, bar: str, goal: str, ok: bool, method: str) -> Bar:
        how = f"{method}; median of {len(self.rounds)} alternating rounds"
        return Bar(bar, self.median, self.range, goal, ok, how)


def alternate(
    candidate: Callable[[], object], baseline: Callable[[], object], *, rounds: int = 9
) -> Ratios:
    """Time both in turns and pair each candidate with the baseline beside it."""
    candidate()
    baseline()
    ratios = []
    for number in range(rounds):
        if number % 2:
            below, above = seconds_of(baseline), seconds_of(candidate)
        else:
            above, below = seconds_of(candidate), seconds_of(baseline)
        ratios.append(above / below)
    return Ratios(tuple(ratios))


def seconds_of(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def count(value: int, limit: int, *, bar: str, method: str) -> Bar:
    """A bar on something that is counted: the same on every machine, so it has no range."""
    return Bar(bar, value, (value, value), f"<= {limit}", value <= limit, method)


def main(
    measure: Callable[..., Iterable[Bar]],
    arguments: Sequence[str] | None = None,
    *,
    parts: Sequence[str] = (),
) -> int:
    """Entry point of a benchmark module; 1 when a bar is missed.

    Bars are shown as soon as they are measured, so that a run that is cut short was not in vain.

    Args:
        parts: what `measure` can be asked to confine itself to; it is called with those chosen.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true", help="one JSON object per bar and line")
    if parts:
        parser.add_argument("--only", action="append", choices=parts, help="repeatable")
    options = parser.parse_args(arguments)
    bars = []
    for bar in measure(options.only or parts) if parts else measure():
        bars.append(bar)
        if options.json:
            print(json.dumps(asdict(bar)), flush=True)
        else:
            print("  ".join(row(bar)[:4]), file=sys.stderr)
    if not options.json:
        print(table(bars))
    return 0 if all(bar.ok for bar in bars) else 1


def parse(lines: str) -> list[Bar]:
    """Bars from the output of a benchmark run with `--json`."""
    bars = []
    for line in lines.splitlines():
        fields = json.loads(line)
        low, high = fields.pop("range")
        bars.append(Bar(range=(low, high), **fields))
    return bars


def table(bars: Iterable[Bar]) -> str:
    head = ("", "bar", "value", "range", "goal", "method")
    rows = [head, *(row(bar) for bar in bars)]
    widths = [max(len(line[column]) for line in rows) for column in range(len(head))]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in rows
    )
    return "\n".join(line.rstrip() for line in padded)


def row(bar: Bar) -> tuple[str, ...]:
    low, high = bar.range
    verdict = "ok" if bar.ok else "MISSED"
    return verdict, bar.bar, f"{bar.value:.3g}", f"{low:.3g} .. {high:.3g}", bar.goal, bar.method
