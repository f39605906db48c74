"""Whether a live object is as its manifest says.

Renderers write every field that the server would default, so what is in the manifest must be in the
live object, field by field. More than that may be there: status, cluster addresses, what other
controllers add. Lists are compared whole, because an added item is a change too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from omni_operator.names import ANNOTATION_MANIFEST_HASH
from omni_operator.render.manifest import Manifest

_WHOLE_MAPS = ("selector", "podSelector", "namespaceSelector", "matchLabels", "nodeSelector")
"""Maps in which one more entry changes the meaning of all; applying one replaces the whole."""
_NAMED = ("name", "mountPath", "containerPort", "port", "type", "key")


def differences(manifest: Manifest, live: Manifest) -> tuple[str, ...]:
    """Return the paths of fields in which a live object departs from its manifest."""
    return tuple(_differences(manifest, live, ""))


def is_drift(manifest: Manifest, live: Manifest) -> bool:
    """Whether someone else changed the object: it was applied from this very manifest."""
    return _hash(manifest) == _hash(live)


def _hash(content: Manifest) -> str | None:
    notes = content["metadata"].get("annotations") or {}
    return notes.get(ANNOTATION_MANIFEST_HASH)


def _differences(wanted: Any, found: Any, path: str) -> Iterator[str]:  # noqa: ANN401  JSON
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping):
            if wanted:
                yield path
            return
        for key, value in wanted.items():
            at = f"{path}.{key}" if path else key
            if key in _WHOLE_MAPS and set(found.get(key) or ()) - set(value or ()):
                yield at
            else:
                yield from _differences(value, found.get(key), at)
    elif isinstance(wanted, list):
        yield from _list_differences(wanted, found, path)
    elif not _same(wanted, found):
        yield path


def _list_differences(wanted: list[Any], found: Any, path: str) -> Iterator[str]:  # noqa: ANN401
    if not isinstance(found, list) or len(found) != len(wanted):
        if wanted or found:
            yield path
        return
    for index, value in enumerate(wanted):
        name = next((value[key] for key in _NAMED if isinstance(value, dict) and key in value), "")
        yield from _differences(value, found[index], f"{path}[{name or index}]")


def _same(wanted: Any, found: Any) -> bool:  # noqa: ANN401
    """Whether two scalars are equal; the server spells quantities its own way, and leaves out
    some fields whose value is their type's zero."""
    if wanted == found or (found is None and wanted in (0, False, "")):
        return True
    return (
        isinstance(wanted, str)
        and isinstance(found, str)
        and _quantity(wanted) == _quantity(found) is not None
    )


_SUFFIXES = {
    "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50,
}  # fmt: skip


def _quantity(text: str) -> float | None:
    number = text.rstrip("kmMGTPKi")
    try:
        return float(number) * _SUFFIXES[text[len(number) :]]
    except (ValueError, KeyError):
        return None
