"""`shared:` entries choose stages by name, by whether they have an engine, or by exclusion."""

from __future__ import annotations

from collections.abc import Mapping

from omni_config.resolution.grammar import Group
from omni_config.suggestions import nearest

SELECTORS = ("stages", "engine", "exclude")


class SelectorError(ValueError):
    """A selector means nothing; the message continues the path `shared[N].select`."""


def select_stages(select: object, stages: Mapping[str, Group]) -> list[str]:
    """Return the names that a selector chooses, in declaration order.

    Raises:
        SelectorError: it is malformed, names an unknown stage, or chooses nothing.
    """
    if not isinstance(select, Mapping) or not select:
        raise SelectorError(" must be a non-empty mapping")
    unknown = [key for key in select if key not in SELECTORS]
    if unknown:
        raise SelectorError(f" has unknown selector(s) {unknown}; use {', '.join(SELECTORS)}")
    engine = select.get("engine")
    if engine is not None and not isinstance(engine, bool):
        raise SelectorError(f".engine must be true or false, got {engine!r}")
    included = _names(select, "stages", stages) if "stages" in select else list(stages)
    excluded = _names(select, "exclude", stages)
    chosen = [
        name
        for name, group in stages.items()
        if name in included
        and name not in excluded
        and (engine is None or ("engine" in group.children) == engine)
    ]
    if not chosen:
        raise SelectorError(" matches no stage of this pipeline")
    return chosen


def _names(select: Mapping[object, object], key: str, stages: Mapping[str, Group]) -> list[str]:
    names = select.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SelectorError(f".{key} must be a list of stage names, got {names!r}")
    missing = [name for name in names if name not in stages]
    if missing:
        hint = nearest(missing[0], stages)
        meant = f"\n  did you mean: {', '.join(hint)}" if hint else ""
        raise SelectorError(
            f".{key} names unknown stage(s) {missing}; this pipeline has: "
            f"{', '.join(stages)}{meant}"
        )
    return names
