"""A resolution as people read it: what changed, why a value is what it is, and the whole as a
file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from omni_config.errors import ConfigError, Problem
from omni_config.resolution.grammar import Address, Group, Keyed, Leaf, grammar_of
from omni_config.resolution.paths import Path, format_path
from omni_config.resolution.provenance import Trace, TraceJson, plain, value_at
from omni_config.resolution.resolve import Resolution
from omni_config.schema import PipelineConfig
from omni_config.settings import EngineArgs, FactoryArgs, FreeSettings

_Dumper: type[yaml.SafeDumper] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

PROVENANCE_FILE = "provenance.json"
"""Lies beside a resolved configuration and says who set its values, as `provenance_json` does."""
UNCHANGED = "No configuration source changed the pipeline's defaults."
_FREE_KEY_DEPTH = 4
"""Segments of a free key: `stages`, the stage, `engine` or `factory`, the key."""
UNTOUCHED = "No configuration source touched the pipeline's defaults."


@dataclass(frozen=True, slots=True)
class Change:
    """A value that is not the model's default."""

    default: object
    resolved: object


def diff_lines(resolution: Resolution) -> list[str]:
    """Return `path: old -> new` for each value that differs from the model's default, sorted."""
    found = changes(resolution)
    return [f"{path}: {change.default!r} -> {change.resolved!r}" for path, change in found.items()]


def changes(resolution: Resolution) -> dict[str, Change]:
    """Return each value that differs from the model's default by its path, sorted."""
    found: dict[str, Change] = {}
    for path, trace in resolution.traces.items():
        if path[0] == "processes":
            continue
        if len(path) > _FREE_KEY_DEPTH and _is_free_key(path):
            # A consumer receives the key as a whole, however deep it was written.
            whole = path[:_FREE_KEY_DEPTH]
            found[format_path(whole)] = Change(None, value_at(resolution.config, whole))
            continue
        resolved = value_at(resolution.config, path)
        if isinstance(resolved, dict) and _covered(path, resolution):
            continue
        if resolved != trace.baseline or _explicit_null(path, trace):
            found[format_path(path)] = Change(trace.baseline, resolved)
    found |= _process_changes(resolution)
    found |= _name_change(resolution)
    return {path: found[path] for path in sorted(found)}


def explain_lines(resolution: Resolution, address: Address) -> list[str]:
    """Return the history of one path: its value, every write, the winner."""
    trace = resolution.traces.get(address.path)
    resolved = value_at(resolution.config, address.path)
    if isinstance(address.node, (Group, Keyed)):
        return list(_group_lines(resolution, address, resolved))
    if trace is not None:
        return list(trace.lines(resolved))
    if resolved is None and isinstance(address.node, Leaf) and address.node.free:
        return [f"{address} is not set"]
    lines = [
        f"{address} = {resolved!r}",
        "  no source touched this path; the value is the model's own default "
        f"({resolution.config.config_cls})",
    ]
    if isinstance(address.node, Leaf) and address.node.description:
        lines.append(f"  {address.node.description}")
    return lines


def explain_all_lines(resolution: Resolution) -> list[str]:
    """Return one line per touched path: `path = value  <- source`."""
    lines = [
        f"{format_path(path)} = {value_at(resolution.config, path)!r}  <- {trace.winner.source}"
        for path, trace in sorted(resolution.traces.items(), key=lambda item: format_path(item[0]))
    ]
    return lines or [UNTOUCHED]


def provenance_lines(resolution: Resolution) -> list[str]:
    """Return the history of every touched path, sorted, a blank line between two."""
    blocks = [
        "\n".join(trace.lines(value_at(resolution.config, path)))
        for path, trace in sorted(resolution.traces.items(), key=lambda item: format_path(item[0]))
    ]
    return "\n\n".join(blocks).splitlines() if blocks else [UNTOUCHED]


def provenance_json(resolution: Resolution) -> list[TraceJson]:
    """Return the history of every touched path as plain data, sorted by path."""
    return sorted(
        (
            trace.to_json(value_at(resolution.config, path))
            for path, trace in resolution.traces.items()
        ),
        key=lambda row: row["path"],
    )


def compile_path(pipeline: type[PipelineConfig], text: str) -> Address:
    """Compile a path for `explain`, which needs one field rather than a whole stage.

    Raises:
        ConfigError: the path means nothing, or names a whole stage.
    """
    address = grammar_of(pipeline).compile_cli(text)
    if address.path[0] == "stages" and len(address.path) == 2:
        name = address.path[1]
        raise ConfigError(
            [
                Problem(
                    text,
                    f"'{name}' names a whole stage; write one field below it, "
                    f"e.g. --{name}.tp_size",
                )
            ]
        )
    return address


def config_body(config: PipelineConfig) -> dict[str, object]:
    """Return a resolved configuration as the body of a file that resolves to itself.

    Values that equal nothing-set are left out; a null stands where the model's default is not null.
    """
    grammar = grammar_of(type(config))
    body: dict[str, object] = {"config_cls": config.config_cls}
    for name, node in grammar.top.children.items():
        value = getattr(config, name)
        if name == "name" and value is None:
            continue
        _put(body, name, _public(value, node, None))
    stages: dict[str, object] = {}
    for stage, declared in zip(config.stages, config.declared_stages(), strict=True):
        settings: dict[str, object] = {}
        for name, node in grammar.stages[stage.name].children.items():
            default = getattr(declared, name)
            _put(settings, name, _public(getattr(stage, name), node, default), default is not None)
        stages[stage.name] = settings
    body["stages"] = stages
    return body


def config_yaml(config: PipelineConfig) -> str:
    """Return `config_body` as YAML text."""
    return yaml.dump(
        config_body(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
    )


def config_hash(config: PipelineConfig) -> str:
    """Return 16 hex digits that change whenever a resolved value does."""
    text = json.dumps(config_body(config), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _public(value: object, node: object, default: object) -> object:
    if not isinstance(value, FreeSettings):
        return plain(value)
    written = {key: plain(item) for key, item in value.written().items()}
    if isinstance(default, FreeSettings):
        # A default that was cleared must stay cleared when the file is read again.
        written |= {key: None for key in default.written() if key not in written}
    return written


def _put(body: dict[str, object], name: str, value: object, keep_null: bool = False) -> None:
    if value is None and not keep_null:
        return
    if value == {} or value == []:
        return
    body[name] = value


def _group_lines(resolution: Resolution, address: Address, resolved: object) -> Iterator[str]:
    shown = resolved
    if isinstance(resolved, dict):
        shown = {key: item for key, item in resolved.items() if item is not None}
    yield f"{address} = {shown!r}"
    below = [
        (path, trace)
        for path, trace in sorted(resolution.traces.items())
        if path[: len(address.path)] == address.path
    ]
    if not below:
        yield (
            "  no source touched this path; the values are the model's own defaults "
            f"({resolution.config.config_cls})"
        )
    for path, trace in below:
        value = value_at(resolution.config, path)
        yield f"  {format_path(path)} = {value!r}  <- {trace.winner.source}"


def _covered(path: Path, resolution: Resolution) -> bool:
    """Whether writes below a cleared group say more than the group itself."""
    return any(other != path and other[: len(path)] == path for other in resolution.traces)


def _explicit_null(path: Path, trace: Trace) -> bool:
    """Whether a free key was set to null on purpose, which its consumer receives."""
    return trace.winner.value is None and _is_free_key(path)


def _is_free_key(path: Path) -> bool:
    if path[0] != "stages" or len(path) < _FREE_KEY_DEPTH or path[2] not in ("engine", "factory"):
        return False
    model = EngineArgs if path[2] == "engine" else FactoryArgs
    return path[3] not in model.model_fields


def _process_changes(resolution: Resolution) -> dict[str, Change]:
    """Return one change per written process policy: it is new as a whole."""
    names = {path[1] for path in resolution.traces if path[0] == "processes" and len(path) > 1}
    return {
        format_path(("processes", name)): Change(None, plain(resolution.config.processes[name]))
        for name in names
        if name in resolution.config.processes
    }


def _name_change(resolution: Resolution) -> dict[str, Change]:
    trace = resolution.traces.get(("model_path",))
    name = resolution.config.display_name
    if trace is None or name == trace.baseline:
        return {}
    return {"name": Change(trace.baseline, name)}
