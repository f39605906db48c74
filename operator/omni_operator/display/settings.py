"""`kubectl omni config` and `explain`: who set what, from a running pipeline's ConfigMap."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from omni_config.errors import ConfigError, Problem
from omni_config.suggestions import nearest
from omni_operator.api.status import ConfigStatus
from omni_operator.names import CONFIG_FILE, PROVENANCE_FILE
from omni_operator.render.manifest import Manifest
from omni_operator.resolution import short_text

Row = Mapping[str, Any]
"""The history of one path, as `omni_config.resolution.provenance` writes it."""


def config_text(config_map: Manifest) -> str:
    """Return the resolved configuration that a ConfigMap holds."""
    text: str = config_map["data"][CONFIG_FILE]
    return text


def changed_lines(config: ConfigStatus) -> Iterator[str]:
    """Yield the settings that are not defaults, winner and superseded, as status has them."""
    for row in config.changed:
        yield f"{row.path} = {row.value}"
        yield f"  {row.from_}" + (f"; over {row.over}" if row.over else "")
    if config.omitted:
        yield f"and {config.omitted} more in ConfigMap {config.config_map}"


def provenance_rows(config_map: Manifest) -> dict[str, Row]:
    """Return the history of every touched path, by path."""
    rows = json.loads(config_map["data"][PROVENANCE_FILE])
    return {row["path"]: row for row in rows}


def explain_lines(config_map: Manifest, path: str) -> list[str]:
    """Return the history of one setting, or of all settings below a path.

    Raises:
        ConfigError: no source touched the path or anything below it.
    """
    rows = provenance_rows(config_map)
    full = path if path in rows or not _below(rows, f"stages.{path}") else f"stages.{path}"
    found = _below(rows, full)
    if not found:
        message = f"no source set '{path}'; its value is the model's default"
        close = nearest(path, [it.removeprefix("stages.") for it in rows])
        raise ConfigError([Problem(path, message, suggestions=close)])
    return [line for row in found for line in _row_lines(row)]


def _below(rows: Mapping[str, Row], path: str) -> list[Row]:
    return [row for at, row in rows.items() if at == path or at.startswith(f"{path}.")]


def _row_lines(row: Row) -> Iterator[str]:
    yield f"{row['path']} = {short_text(row['value'])}"
    for write in reversed(row["writes"]):
        line = f":{write['line']}" if write.get("line") else ""
        manager = f" by {write['manager']}" if write.get("manager") else ""
        source = f"{write['source']}{line}{manager}"
        yield f"  {short_text(write['value'])}  <- {source} [{write['state']}]"
    yield f"  {short_text(row['baseline'])}  <- model default"
