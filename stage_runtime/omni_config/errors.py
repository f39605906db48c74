"""The root of every error omnipipe raises, and the ones configuration raises.

A class stands for one *reaction* of the caller: configuration errors are fixed by the user and
never retried. A configuration error carries every problem found, not the first one, because each
round trip through an editor or a cluster costs more than the check.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


class OmniError(Exception):
    """Root of the tree: catching it catches everything omnipipe raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a configuration.

    Attributes:
        path: dotted path of the setting, empty when the problem belongs to no single setting.
        message: what is wrong, why, and the way out; complete without the other fields.
        where: file and line, flag or object field that wrote the value, empty when unknown.
        suggestions: nearest real names, most similar first.
    """

    path: str
    message: str
    where: str = ""
    suggestions: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.message}" if self.where else self.message]
        if self.suggestions:
            lines.append(f"  did you mean: {', '.join(self.suggestions)}")
        return "\n".join(lines)


class ConfigError(OmniError):
    """The configuration cannot work as written; retrying will not help."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class PlanError(ConfigError):
    """The configuration is well formed, but no placement of it satisfies every rule."""


class PlanOnlyError(OmniError):
    """The pipeline can be resolved and planned, but its stages cannot run yet."""

    def __init__(self, pipeline: str, reason: str) -> None:
        self.pipeline = pipeline
        super().__init__(f"{pipeline} is plan-only and cannot be started: {reason}")
