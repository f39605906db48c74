"""What the Coordinator knows of a pipeline: stages, their groups, and where a request can end.

Derived once from the configuration. Two questions are answered per request: which terminals are
expected to complete it, and which stages it can pass on the way there. A request binds only stages
it may need, so a text reply does not fail because the vocoder is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from omni_config.schema import PipelineConfig
from omni_gateway.errors import TerminalsHookError
from omni_wire.messages import RequestView

TerminalsHook = Callable[[RequestView], object]
WarmUpHook = Callable[[], Mapping[str, RequestView]]


@dataclass(frozen=True, slots=True)
class PipelineTopology:
    """The graph of a pipeline, by logical names.

    Attributes:
        entry: the stage that receives a request first.
        terminals: every stage that may complete a request, in declaration order.
        group_of: process group of each stage, in declaration order.
        sources_of: the stages that send payloads or chunks to a stage.
        terminals_hook: chooses the terminals of a request; null expects all of them.
        warm_ups: requests by name that must be answered before the pipeline counts as ready.
    """

    entry: str
    terminals: tuple[str, ...]
    group_of: Mapping[str, str]
    sources_of: Mapping[str, frozenset[str]]
    terminals_hook: TerminalsHook | None = None
    warm_ups: Mapping[str, RequestView] = field(default_factory=dict)
    _needed: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict, repr=False)

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of all stages, in declaration order."""
        return tuple(self.group_of)

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of all process groups, in order of first appearance."""
        return tuple(dict.fromkeys(self.group_of.values()))

    def stages_of(self, group: str) -> frozenset[str]:
        """Return the stages that run in a group; empty for a group the pipeline does not have."""
        return frozenset(stage for stage, name in self.group_of.items() if name == group)

    def groups_needed(self, stages: frozenset[str]) -> tuple[str, ...]:
        """Return the groups that hold any of these stages."""
        return tuple(group for group in self.groups if self.stages_of(group) & stages)

    def warm_up_groups(self, name: str) -> tuple[str, ...]:
        """Return the groups that a warm-up crosses."""
        expected = self.expected_terminals(self.warm_ups[name])
        return self.groups_needed(self.stages_needed(expected))

    def expected_terminals(self, request: RequestView) -> tuple[str, ...]:
        """Return the stages whose results together complete a request, in declaration order.

        Raises:
            TerminalsHookError: the hook raised, or returned anything but a non-empty list of
                terminals.
        """
        if self.terminals_hook is None:
            return self.terminals
        try:
            chosen = self.terminals_hook(request)
        # Hooks are the model author's code: whatever it raises fails this request and nothing else.
        except Exception as error:
            raise TerminalsHookError(f"terminal_stages_fn raised {error!r}") from error
        return self._checked(chosen)

    def stages_needed(self, expected: tuple[str, ...]) -> frozenset[str]:
        """Return the expected terminals and every stage from which one of them can be reached."""
        known = self._needed.get(expected)
        if known is None:
            known = self._needed[expected] = frozenset(self._ancestors(expected)) | {self.entry}
        return known

    def _checked(self, chosen: object) -> tuple[str, ...]:
        if not isinstance(chosen, list | tuple | set | frozenset):
            raise TerminalsHookError(
                f"terminal_stages_fn must return a list of stage names, got {chosen!r}"
            )
        names = list(chosen)
        if not names or any(name not in self.terminals for name in names):
            raise TerminalsHookError(
                f"terminal_stages_fn returned {names!r}; "
                f"it must name at least one of {list(self.terminals)} and no other stage"
            )
        return tuple(stage for stage in self.terminals if stage in names)

    def _ancestors(self, stages: Iterable[str]) -> set[str]:
        seen: set[str] = set()
        pending = list(stages)
        while pending:
            stage = pending.pop()
            if stage in seen:
                continue
            seen.add(stage)
            pending.extend(self.sources_of.get(stage, ()))
        return seen


def topology_of(config: PipelineConfig) -> PipelineTopology:
    """Return the graph of a configured pipeline.

    Raises:
        ImportError, AttributeError: `terminal_stages_fn` or `warm_up_fn` of the config class names
            nothing importable.
    """
    sources: dict[str, set[str]] = {stage.name: set() for stage in config.stages}
    for stage in config.stages:
        for target in (*stage.next, *stage.stream_to):
            sources[target].add(stage.name)
    return PipelineTopology(
        entry=config.entry,
        terminals=config.terminals,
        group_of={stage.name: stage.process_name for stage in config.stages},
        sources_of={stage: frozenset(names) for stage, names in sources.items()},
        terminals_hook=_terminals_hook(config.terminal_stages_fn),
        warm_ups=_warm_ups(config.warm_up_fn),
    )


def _terminals_hook(path: str | None) -> TerminalsHook | None:
    if path is None:
        return None
    hook: TerminalsHook = _imported(path)
    return hook


def _warm_ups(path: str | None) -> Mapping[str, RequestView]:
    if path is None:
        return {}
    hook: WarmUpHook = _imported(path)
    return hook()


def _imported(path: str) -> Any:  # noqa: ANN401  # whatever the author put there
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)
