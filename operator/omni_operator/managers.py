"""Who wrote which field of an object, from `metadata.managedFields`.

The API server keeps, per field manager, the set of fields it owns, as nested keys: `f:name` for a
field, `k:{...}` for a list item told apart by its keys. Where several managers own one field with
the same value, the latest to write it is named.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

FieldPath = tuple[object, ...]
_FIELD = "f:"
_KEYED_ITEM = "k:"
_SELF = "."


def field_managers(
    managed_fields: Sequence[Mapping[str, Any]], prefix: tuple[str, ...]
) -> dict[FieldPath, str]:
    """Return the manager of each owned field below `prefix`, by its path relative to it.

    The path of an item of a keyed list holds the item's keys as JSON text, such as
    `{"path":"thinker.tp_size"}`.
    """
    owners: dict[FieldPath, str] = {}
    for entry in sorted(managed_fields, key=_written_at):
        if entry.get("subresource"):
            continue
        fields = _below(entry.get("fieldsV1") or {}, prefix)
        if fields is not None:
            owners |= dict.fromkeys(_leaves(fields, ()), str(entry.get("manager", "unknown")))
    return owners


def override_managers(managed_fields: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the manager of each entry of `spec.overrides`, by the entry's path."""
    owners: dict[str, str] = {}
    for path, manager in field_managers(managed_fields, ("spec", "overrides")).items():
        if not path or not isinstance(path[0], str):
            continue
        if path[0].startswith("{"):
            owners[str(json.loads(path[0]).get("path", ""))] = manager
    return owners


def _written_at(entry: Mapping[str, Any]) -> str:
    """Order entries by their RFC 3339 time in UTC, which sorts as text."""
    return str(entry.get("time") or "")


def _below(fields: Mapping[str, Any], prefix: tuple[str, ...]) -> Mapping[str, Any] | None:
    for name in prefix:
        below = fields.get(f"{_FIELD}{name}")
        if not isinstance(below, Mapping):
            return None
        fields = below
    return fields


def _leaves(fields: Mapping[str, Any], path: FieldPath) -> Iterator[FieldPath]:
    children = {key: value for key, value in fields.items() if key != _SELF}
    if not children:
        yield path
    for key, value in children.items():
        if key.startswith(_FIELD):
            yield from _leaves(value, (*path, key.removeprefix(_FIELD)))
        elif key.startswith(_KEYED_ITEM):
            yield from _leaves(value, (*path, key.removeprefix(_KEYED_ITEM)))
