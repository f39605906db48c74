"""What processes hold while nothing happens: memory and open files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_LOOK_SECONDS = 0.5
_LOOKS = 40
_SPARE_FILES = 8
"""Files that may be open more than before: connections that are just being replaced."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Resident memory in KiB and number of open files, added up over the processes of a run."""

    kib: int = 0
    files: int = 0

    def growth_over(self, before: Footprint, factor: float) -> Iterator[str]:
        """Return how this is more than before, allowing memory to grow by a factor."""
        if self.kib > before.kib * factor:
            yield f"memory grew from {before.kib} to {self.kib} KiB ({self.kib / before.kib:.3f}x)"
        if self.files > before.files + _SPARE_FILES:
            yield f"open files grew from {before.files} to {self.files}"

    def __str__(self) -> str:
        return f"{self.kib / 1024:.1f} MiB and {self.files} files"


async def resting(pids: Mapping[str, int]) -> Footprint:
    """Return the footprint once it has stopped shrinking; look for a bounded time."""
    least = _look(pids)
    unchanged = 0
    for _ in range(_LOOKS):
        await asyncio.sleep(_LOOK_SECONDS)
        seen = _look(pids)
        unchanged = unchanged + 1 if seen.kib >= least.kib else 0
        least = min(least, seen, key=lambda each: each.kib)
        if unchanged == 4:
            break
    return least


def _look(pids: Mapping[str, int]) -> Footprint:
    folders = [Path(f"/proc/{pid}") for pid in pids.values()]
    return Footprint(
        kib=sum(_resident_kib(folder / "status") for folder in folders),
        files=sum(len(list((folder / "fd").iterdir())) for folder in folders),
    )


def _resident_kib(status: Path) -> int:
    lines = status.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
