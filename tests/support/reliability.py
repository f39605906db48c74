"""The table of faults: written by the test run that saw them.

Rows lie in `build/reliability.json` while tests run. `python -m tests.support.reliability` puts the
table into docs/reliability.md.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.cluster_load import End, Outcome

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT / "build" / "reliability.json"
DOCUMENT = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- the table: begin -->\n", "<!-- the table: end -->\n"
HEAD = (
    "| fault | requests during it | succeeded | failed typed, retryable | wrong or lost"
    " | whole again after |\n|---|---:|---:|---:|---:|---:|\n"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One fault and what became of the requests from its beginning until all was whole again.

    Attributes:
        reasons: of the failed ones, with their numbers.
        bad: wrong answers, requests without an end, and errors without a type or not retryable.
        seconds: from the fault until the pipeline was Ready and a new request was answered.
    """

    fault: str
    requests: int
    succeeded: int
    failed: int
    reasons: str
    bad: int
    seconds: float

    def line(self) -> str:
        """Return the row as Markdown."""
        failed = f"{self.failed} ({self.reasons})" if self.failed else "0"
        return (
            f"| {self.fault} | {self.requests} | {self.succeeded} | {failed} | {self.bad}"
            f" | {self.seconds:.1f} s |\n"
        )


def row_of(fault: str, outcomes: list[Outcome], seconds: float) -> Row:
    """Return what happened during a fault."""
    failed = [one for one in outcomes if one.end is End.FAILED]
    right = sum(one.end is End.RIGHT for one in outcomes)
    counts = {
        reason: sum(one.detail == reason for one in failed)
        for reason in sorted({one.detail for one in failed})
    }
    return Row(
        fault=fault,
        requests=len(outcomes),
        succeeded=right,
        failed=len(failed),
        reasons=", ".join(f"{reason} {count}" for reason, count in counts.items()),
        bad=len(outcomes) - right - len(failed),
        seconds=seconds,
    )


def keep(row: Row) -> None:
    """Add a row to those of this run, in place of an earlier one of the same fault."""
    ROWS.parent.mkdir(exist_ok=True)
    rows = [one for one in _kept() if one.fault != row.fault]
    ROWS.write_text(json.dumps([asdict(one) for one in [*rows, row]], indent=1))


def with_table(text: str, rows: list[Row]) -> str:
    """Return a document with these rows between its marks."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return before + BEGIN + HEAD + "".join(one.line() for one in rows) + END + after


def main() -> None:
    """Write the table into the document."""
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(), _kept()))


def _kept() -> list[Row]:
    return [Row(**one) for one in json.loads(ROWS.read_text())] if ROWS.exists() else []


if __name__ == "__main__":
    main()
