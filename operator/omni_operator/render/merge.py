"""How `podTemplate` patches a rendered pod.

The rules are few enough to remember: mappings merge by key; a list whose items all have a
mountPath, a containerPort or a name merges item by item; any other list is replaced; null removes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LIST_KEYS = ("mountPath", "containerPort", "name")
"""What tells items of a list apart, the first that all of them have."""


def merge(base: Any, patch: Any) -> Any:  # noqa: ANN401  JSON of any shape
    """Return `base` with `patch` over it; neither is changed."""
    if isinstance(base, Mapping) and isinstance(patch, Mapping):
        return _merge_mappings(base, patch)
    if isinstance(base, list) and isinstance(patch, list):
        return _merge_lists(base, patch)
    return patch


def _merge_mappings(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(base[key], value) if key in base else value
    return merged


def _merge_lists(base: list[Any], patch: list[Any]) -> list[Any]:
    items = [*base, *patch]
    key = next((one for one in _LIST_KEYS if items and all(_has(item, one) for item in items)), "")
    if not key:
        return patch
    merged = {item[key]: item for item in base}
    for item in patch:
        known = merged.get(item[key])
        merged[item[key]] = item if known is None else merge(known, item)
    return list(merged.values())


def _has(item: Any, key: str) -> bool:  # noqa: ANN401
    return isinstance(item, Mapping) and key in item
