"""What a run showed: answers beside the judge's, and what the log gives away. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

WAV_TOLERANCE = 1e-4
"""On a CPU 1e-5; the convolutions of a GPU sum in another order."""

_CAPTURED = re.compile(r"^(?P<process>[\w@.-]+) *\| .*Capture .*graph end")
_ATTACHED = re.compile(r"attached to the leader's weights.*?shared_bytes\W+(?P<bytes>\d+)")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str

    def __str__(self) -> str:
        return f"{'ok    ' if self.ok else 'FAILED'}  {self.name}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Said:
    """An answer, ours or the judge's.

    Attributes:
        codes: `[groups, frames]`; empty without speech.
        wav: samples at 24 kHz.
    """

    tokens: Sequence[int]
    codes: npt.NDArray[Any]
    wav: npt.NDArray[Any]


def compared(name: str, ours: Said, judge: Said, *, speech: bool = True) -> Iterator[Finding]:
    """Yield what is equal of two answers, with the first place where it is not."""
    yield _equal(f"{name}: tokens", np.asarray(ours.tokens), np.asarray(judge.tokens))
    if not speech:
        return
    yield _equal(f"{name}: codes", ours.codes.T, judge.codes.T)
    if len(ours.wav) != len(judge.wav):
        yield Finding(f"{name}: waveform", False, f"{len(ours.wav)} samples, not {len(judge.wav)}")
        return
    most = float(np.abs(ours.wav - judge.wav).max(initial=0.0))
    yield Finding(f"{name}: waveform", most <= WAV_TOLERANCE, f"differs by {most:.1e} at most")


def graphs_captured(log: str, processes: Iterable[str]) -> Iterator[Finding]:
    """Yield whether each process said that it has captured CUDA graphs."""
    captured = [match["process"] for line in log.splitlines() if (match := _CAPTURED.match(line))]
    for process in processes:
        times = captured.count(process)
        yield Finding(f"CUDA graphs of {process}", times > 0, f"{times} captures in the log")


def weights_shared(log: str) -> Finding:
    """Return whether a follower attached to its leader's weights."""
    attached = [int(match["bytes"]) for match in _ATTACHED.finditer(log)]
    detail = f"{len(attached)} modules of followers attached, {sum(attached)} bytes"
    return Finding("weights shared", sum(attached) > 0, detail)


def _equal(name: str, ours: npt.NDArray[Any], judge: npt.NDArray[Any]) -> Finding:
    if ours.shape != judge.shape:
        return Finding(name, False, f"shape {ours.shape}, not {judge.shape}")
    rows = (ours != judge).reshape(len(ours), -1).any(-1)
    if rows.any():
        first = int(rows.argmax())
        return Finding(name, False, f"differ from place {first} of {len(ours)} on")
    return Finding(name, True, f"{len(ours)} equal")
