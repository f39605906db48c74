"""Rules of the graph: edges that exist, payloads that end, waits that are fed.

Each of them, broken, would refuse or hang every request; so they are checked when a pipeline is
built.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from omni_config.errors import Problem
from omni_config.suggestions import nearest

if TYPE_CHECKING:
    from omni_config.schema import PipelineConfig, StageConfig

INSTANCE_SUFFIX = re.compile(r"@r[0-9]+$")
"""Ending reserved for the copies of a stage or process."""


def graph_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield every broken rule of the graph."""
    names = [stage.name for stage in config.stages]
    known = set(names)
    for name, count in Counter(names).items():
        if count > 1:
            yield Problem(f"stages.{name}", f"Stage name '{name}' is declared {count} times")
    if config.entry_stage is not None and config.entry_stage not in known:
        yield Problem("entry_stage", f"entry_stage '{config.entry_stage}' is not defined")
    sound = True
    for stage in config.stages:
        for problem in _stage_graph_problems(stage, known):
            sound = False
            yield problem
    if sound and len(known) == len(names) and config.entry in known:
        yield from _flow_problems(config)


def _stage_graph_problems(stage: StageConfig, known: set[str]) -> Iterator[Problem]:
    at, name = f"stages.{stage.name}", stage.name
    if INSTANCE_SUFFIX.search(name):
        yield Problem(
            at, f"Stage name '{name}' uses the '@r<N>' suffix reserved for replica instances"
        )
    if bool(stage.next) == stage.terminal:
        yield Problem(at, f"Stage '{name}' must set exactly one of 'next' or 'terminal'")
    for field in ("next", "stream_to", "wait_for"):
        unknown = [target for target in getattr(stage, field) if target not in known]
        if unknown:
            yield Problem(
                f"{at}.{field}",
                f"Stage '{name}' {field} has unknown stages: {unknown}",
                suggestions=nearest(unknown[0], known),
            )
    for target in stage.project_payload:
        if target not in known:
            yield Problem(
                f"{at}.project_payload",
                f"Stage '{name}' project_payload references unknown stage '{target}'",
                suggestions=nearest(target, known),
            )
    yield from _hook_problems(stage)


def _hook_problems(stage: StageConfig) -> Iterator[Problem]:
    """Refuse hooks that would never be called, or that are missing where one is needed."""
    at, name = f"stages.{stage.name}", stage.name
    if stage.wait_for and stage.merge_fn is None:
        yield Problem(f"{at}.wait_for", f"Stage '{name}' sets wait_for and needs a merge_fn")
    if stage.wait_for_fn and not stage.wait_for:
        yield Problem(
            f"{at}.wait_for_fn", f"Stage '{name}' cannot set wait_for_fn without wait_for"
        )
    if stage.route_fn and stage.terminal:
        yield Problem(f"{at}.route_fn", f"Stage '{name}' is terminal and cannot set route_fn")
    if stage.stream_done_to_fn and not stage.stream_to:
        yield Problem(
            f"{at}.stream_done_to_fn",
            f"Stage '{name}' cannot set stream_done_to_fn without stream_to",
        )


def _flow_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Find cycles, stages nobody reaches and waits nobody feeds: each would hang a request."""
    by_name = {stage.name: stage for stage in config.stages}
    cycle = _payload_cycle(by_name)
    if cycle:
        yield Problem(
            f"stages.{cycle[0]}.next",
            f"Payloads would go round for ever: {' -> '.join(cycle)}; a pipeline needs a path "
            "without a cycle to a terminal stage",
        )
    reached = _reachable(config.entry, by_name)
    for stage in config.stages:
        if stage.name not in reached:
            yield Problem(
                f"stages.{stage.name}",
                f"Stage '{stage.name}' is not reachable from the entry stage '{config.entry}'",
            )
        for source in stage.wait_for:
            if stage.name not in by_name[source].next:
                yield Problem(
                    f"stages.{stage.name}.wait_for",
                    f"Stage '{stage.name}' waits for '{source}', but '{source}' never sends to it "
                    f"(its next: {list(by_name[source].next)})",
                )


def _payload_cycle(by_name: Mapping[str, StageConfig]) -> list[str]:
    """Return the stages of one cycle, the first repeated at the end; empty when there is none."""
    done: set[str] = set()
    for start in by_name:
        # The stages walked through, in order, each with the targets not tried yet.
        trail = {} if start in done else {start: iter(by_name[start].next)}
        while trail:
            name = next(reversed(trail))
            target = next(trail[name], None)
            if target is None:
                done.add(trail.popitem()[0])
            elif target in trail:
                names = list(trail)
                return [*names[names.index(target) :], target]
            elif target not in done:
                trail[target] = iter(by_name[target].next)
    return []


def _reachable(entry: str, by_name: Mapping[str, StageConfig]) -> set[str]:
    reached: set[str] = set()
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        waiting += [*by_name[name].next, *by_name[name].stream_to]
    return reached
