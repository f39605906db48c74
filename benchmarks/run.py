"""Run every benchmark and print one table, so that a missed bar cannot hide in one of many logs.

Each benchmark runs in a process of its own: what one imports must not warm another.
"""

import subprocess
import sys
from pathlib import Path

from benchmarks import report

HERE = Path(__file__).resolve().parent
NOT_BENCHMARKS = {"report", "run"}


def main() -> int:
    names = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NOT_BENCHMARKS)
    broken = False
    bars: list[report.Bar] = []
    for name in names:
        print(f"running {name} ...", file=sys.stderr)
        result = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}", "--json"],
            cwd=HERE.parent,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        found = report.parse(result.stdout)
        bars += found
        # A missed bar exits 1 as well; a benchmark that broke exits so without saying which bar.
        if result.returncode and all(bar.ok for bar in found):
            print(f"{name} failed with status {result.returncode}", file=sys.stderr)
            broken = True
    print(report.table(bars))
    return 1 if broken or not all(bar.ok for bar in bars) else 0


if __name__ == "__main__":
    raise SystemExit(main())
