"""Who set each value, and whom they superseded.

A trace lists the writes of one path from weakest to strongest; the last is the winner. A path
without a trace was touched by no source: its value is the model's own default, and its winner is
the config class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypedDict

from pydantic import BaseModel

from omni_config.errors import Problem
from omni_config.resolution.paths import Path, format_path
from omni_config.resolution.sources import Source
from omni_config.schema import PipelineConfig
from omni_config.settings import FreeSettings

BASELINE = "model default - value before any patch was applied"


class WriteJson(TypedDict):
    """One write as plain data; `state` is `winner` or `superseded`."""

    value: object
    source: str
    kind: str
    origin: str
    line: int | None
    manager: str | None
    state: str


class TraceJson(TypedDict):
    """The history of one path as plain data, writes from weakest to strongest."""

    path: str
    value: object
    baseline: object
    writes: list[WriteJson]


@dataclass(frozen=True, slots=True)
class Write:
    """One source's value for a path, as written."""

    value: object
    source: Source


@dataclass(frozen=True, slots=True)
class Trace:
    """The history of one path.

    Attributes:
        baseline: the model's own value; meaningless when `derived`.
        writes: weakest first; never empty.
        derived: the value follows from other settings, so there was none before.
    """

    path: Path
    baseline: object
    writes: tuple[Write, ...]
    derived: bool = False

    @property
    def winner(self) -> Write:
        """The write whose value holds."""
        return self.writes[-1]

    def lines(self, resolved: object) -> Iterator[str]:
        """Yield the block `config explain` prints."""
        yield f"{format_path(self.path)} = {resolved!r}"
        if not self.derived:
            yield f"  {self.baseline!r}  <- {BASELINE}"
        for write in self.writes[:-1]:
            yield f"  {write.value!r}  <- {write.source}  [superseded]"
        winner = self.winner
        changed = "" if _same(winner.value, resolved) else f" (resolved to {resolved!r})"
        yield f"  {winner.value!r}  <- {winner.source}  [winner]{changed}"

    def to_json(self, resolved: object) -> TraceJson:
        """Return the trace as plain data."""
        last = len(self.writes) - 1
        return {
            "path": format_path(self.path),
            "value": resolved,
            "baseline": None if self.derived else self.baseline,
            "writes": [
                {
                    "value": write.value,
                    "source": str(write.source),
                    "kind": write.source.kind,
                    "origin": write.source.origin,
                    "line": write.source.line,
                    "manager": write.source.manager,
                    "state": "winner" if index == last else "superseded",
                }
                for index, write in enumerate(self.writes)
            ],
        }


class Tracer:
    """Collects writes while patches are merged."""

    def __init__(self) -> None:
        self._writes: dict[Path, list[Write]] = {}
        self._baselines: dict[Path, object] = {}
        self._derived: set[Path] = set()

    def add(self, path: Path, baseline: object, write: Write) -> None:
        """Note one more write of a path; the first one fixes the baseline."""
        writes = self._writes.get(path)
        if writes is None:
            self._writes[path] = [write]
            self._baselines[path] = baseline
        else:
            writes.append(write)

    def add_derived(self, path: Path, write: Write) -> None:
        """Note a value that follows from other settings."""
        self._derived.add(path)
        self.add(path, None, write)

    def __contains__(self, path: Path) -> bool:
        return path in self._writes

    def traces(self) -> dict[Path, Trace]:
        """Return the traces so far, by path."""
        return {
            path: Trace(path, self._baselines[path], tuple(writes), path in self._derived)
            for path, writes in self._writes.items()
        }


def located(problem: Problem, traces: Mapping[Path, Trace]) -> Problem:
    """Point a problem at who wrote its value, or wrote nearest to it, unless it already points."""
    if problem.where or not problem.path:
        return problem
    path = tuple(problem.path.split("."))
    shortest = 2 if path[0] == "stages" else 1
    for length in range(len(path), shortest - 1, -1):
        found = [trace for at, trace in traces.items() if at[:length] == path[:length]]
        if found:
            return replace(problem, where=found[-1].winner.source.where)
    return problem


def value_at(config: PipelineConfig, path: Path) -> object:
    """Return the resolved value at a canonical path; null for a key nobody set."""
    if path[0] == "stages":
        value: object = config.by_name[path[1]]
        rest = path[2:]
    else:
        value, rest = config, path
    for segment in rest:
        value = below(value, segment)
    if path == ("name",) and value is None:
        return config.display_name
    return plain(value)


def below(value: object, segment: str) -> object:
    """Return the value one segment below a group or mapping; null when it is not set."""
    if isinstance(value, FreeSettings):
        if segment in type(value).model_fields:
            return getattr(value, segment)
        return value.free_keys().get(segment)
    if isinstance(value, BaseModel):
        return getattr(value, segment)
    if isinstance(value, Mapping):
        return value.get(segment)
    return None


def plain(value: object) -> object:
    """Return a value as JSON has it: groups as mappings of what is set, tuples as lists."""
    if isinstance(value, FreeSettings):
        return {key: plain(item) for key, item in value.written().items()}
    if isinstance(value, BaseModel):
        return {key: plain(getattr(value, key)) for key in type(value).model_fields}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def _same(written: object, resolved: object) -> bool:
    return written == resolved and type(written) is type(resolved)
