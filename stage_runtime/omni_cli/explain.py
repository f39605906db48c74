"""What `omni config explain` says beyond a value's history.

The winner of a path is not the whole truth when something outside the path decides what runs:
placement moves a stage away from the `gpu` it shows, the shell's environment beats any `env`, and
the class itself was chosen by somebody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import indent

from omni_cli.sources import Resolved
from omni_config.consumer_keys import unknown_keys
from omni_config.planning.environment import shell_notes
from omni_config.planning.instances import device_override_warnings
from omni_config.resolution.grammar import Address
from omni_config.resolution.inspection import compile_path, explain_all_lines, explain_lines
from omni_config.resolution.paths import Path, format_path
from omni_config.resolution.provenance import Trace, TraceJson, Write, value_at

CONFIG_CLS = "config_cls"


def explanation(resolved: Resolved, path: str, environ: Mapping[str, str]) -> list[str]:
    """Return the history of one path, and what bears on it from outside.

    Raises:
        ConfigError: the path means nothing or names a whole stage.
    """
    if path == CONFIG_CLS:
        chosen = resolved.resolution.config.config_cls
        return list(_class_trace(resolved).lines(chosen))
    address = compile_path(resolved.selection.pipeline, path)
    notes = "\n".join(f"note: {note}" for note in _notes(resolved, address, environ))
    return [*explain_lines(resolved.resolution, address), *indent(notes, "  ").splitlines()]


def explanation_data(
    resolved: Resolved, path: str | None, environ: Mapping[str, str]
) -> list[Mapping[str, object]]:
    """Return the same as plain data, for one path or for every touched one.

    Raises:
        ConfigError: the path means nothing or names a whole stage.
    """
    if path == CONFIG_CLS:
        return [_class_row(resolved)]
    if path is None:
        touched = sorted(resolved.resolution.traces, key=format_path)
        return [_class_row(resolved), *(_row(resolved, found) for found in touched)]
    address = compile_path(resolved.selection.pipeline, path)
    notes = list(_notes(resolved, address, environ))
    return [{**_row(resolved, address.path), "notes": notes}]


def summary(resolved: Resolved) -> list[str]:
    """Return one line per touched path, the choice of the class first."""
    source = resolved.selection.source
    chosen = f"{CONFIG_CLS} = {resolved.resolution.config.config_cls!r}  <- {source}"
    return [chosen, *explain_all_lines(resolved.resolution)]


def _notes(resolved: Resolved, address: Address, environ: Mapping[str, str]) -> Iterator[str]:
    config, path = resolved.resolution.config, address.path
    if path[0] == "stages" and path[2:] == ("gpu",):
        begin = f"Stage '{path[1]}': "
        for warning in device_override_warnings(config):
            if warning.startswith(begin):
                yield warning.removeprefix(begin)
    for note in shell_notes(config, environ):
        if note.startswith((f"{address}=", f"{address}.")):
            yield note
    for problem in unknown_keys(config):
        if f"{problem.path}.".startswith(f"{address}."):
            yield str(problem)


def _row(resolved: Resolved, path: Path) -> TraceJson:
    resolution = resolved.resolution
    value = value_at(resolution.config, path)
    trace = resolution.traces.get(path)
    if trace is None:
        trace = Trace(path, value, ())
    return trace.to_json(value)


def _class_row(resolved: Resolved) -> TraceJson:
    return _class_trace(resolved).to_json(resolved.resolution.config.config_cls)


def _class_trace(resolved: Resolved) -> Trace:
    """Return who chose the class; nothing was there before, so there is no baseline."""
    chosen = Write(resolved.resolution.config.config_cls, resolved.selection.source)
    return Trace((CONFIG_CLS,), None, (chosen,), derived=True)
