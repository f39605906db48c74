"""The body of a configuration file or object, as patches.

`spec.config` of an OmniPipeline, a profile's ConfigMap and a YAML file share this shape word for
word: `config_cls`, `model_path`, other top-level settings, `stages:` by name, and `shared:`
selector lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from omni_config.document import Mark
from omni_config.errors import ConfigError, Problem
from omni_config.paths import Address, Grammar, Group, Keyed, Path, format_path
from omni_config.scalars import ScalarError
from omni_config.sources import Layer, Patch, Source, Specificity
from omni_config.suggestions import nearest

REMOVED_TOP_KEYS = {
    "stage_overrides": "the stage_overrides block was removed; write the same settings under the "
    "stages: mapping, e.g. stages.<name>.gpu_memory_fraction",
    "runtime_overrides": "runtime_overrides was removed; write stages.<name>.engine.* or "
    "stages.<name>.factory.* instead",
    "entry_stage": "entry_stage is not user configuration; the entry stage is declared by the "
    "model's config class",
    "relay_backend": "relay_backend was removed; the transport between stages follows from where "
    "they run, and its limits are stages.<name>.comm.*",
    "fused_stages": "fused_stages was removed; give the stages the same stages.<name>.process",
}
_T = TypeVar("_T")
_LIST_FORM = """stages must be a mapping keyed by stage name; the list form is no longer accepted. \
Move each entry under its name and drop the name: key:

    stages:
      thinker:
        tp_size: 2"""


@dataclass(frozen=True, slots=True)
class Body:
    """A mapping of settings with its source.

    Attributes:
        values: the mapping, as parsed.
        source: who wrote it; line and detail are filled in per value.
        layer: layer of every value.
        marks: line and text per value, when the mapping was read from text.
        managers: field manager per value, when the mapping came from an object.
    """

    values: Mapping[object, object]
    source: Source
    layer: Layer
    marks: Mapping[tuple[object, ...], Mark] = field(default_factory=dict)
    managers: Mapping[tuple[object, ...], str] = field(default_factory=dict)

    def source_of(self, keys: tuple[object, ...], detail: str = "") -> Source:
        """Return the source of the value at `keys`, at its own line."""
        mark = self._mark(keys)
        manager = next(
            (
                self.managers[keys[:end]]
                for end in range(len(keys), -1, -1)
                if keys[:end] in self.managers
            ),
            None,
        )
        return replace(
            self.source, line=mark.line if mark else None, detail=detail, manager=manager
        )

    def text_of(self, keys: tuple[object, ...]) -> str | None:
        """Return a scalar as it was spelt, when known."""
        mark = self.marks.get(keys)
        return mark.text if mark else None

    def _mark(self, keys: tuple[object, ...]) -> Mark | None:
        for end in range(len(keys), 0, -1):
            if keys[:end] in self.marks:
                return self.marks[keys[:end]]
        return None


def body_patches(body: Body, grammar: Grammar) -> tuple[list[Patch], list[Problem]]:
    """Return every write of a body and every key that means nothing."""
    reader = _BodyReader(body, grammar)
    reader.read()
    return reader.patches, reader.problems


class _BodyReader:
    def __init__(self, body: Body, grammar: Grammar) -> None:
        self._body = body
        self._grammar = grammar
        self.patches: list[Patch] = []
        self.problems: list[Problem] = []

    def read(self) -> None:
        for key, value in self._body.values.items():
            if key == "config_cls":
                continue
            if key == "stages":
                self._stages(value)
            elif key == "shared":
                self._shared(value)
            elif isinstance(key, str) and key in REMOVED_TOP_KEYS:
                self._refuse((key,), key, f"{self._name}: {REMOVED_TOP_KEYS[key]}")
            else:
                self._value((key,), (), value, Specificity.EXPLICIT)

    @property
    def _name(self) -> str:
        kind = "Config file" if self._body.source.kind == "yaml file" else self._body.source.kind
        return f"{kind} '{self._body.source.origin}'"

    def _stages(self, stages: object) -> None:
        if not isinstance(stages, Mapping):
            message = (
                _LIST_FORM
                if isinstance(stages, list)
                else "stages must be a mapping from stage name to stage settings, got "
                f"{_type_name(stages)}"
            )
            self._refuse(("stages",), "stages", message)
            return
        for name, settings in stages.items():
            keys = ("stages", name)
            if not isinstance(name, str):
                self._refuse(keys, "stages", f"stages has the key {name!r}; a stage name is text")
            elif name not in self._grammar.stages:
                self._report(keys, self._grammar.unknown_stage(name))
            elif not isinstance(settings, Mapping):
                self._refuse(keys, f"stages.{name}", f"stages.{name} must be a mapping")
            elif "name" in settings:
                self._refuse(
                    (*keys, "name"),
                    f"stages.{name}.name",
                    f"stages.{name} must not set name: the mapping key is the stage's name",
                )
            else:
                for key, value in settings.items():
                    self._value((*keys, key), ("stages", name), value, Specificity.EXPLICIT)

    def _shared(self, entries: object) -> None:
        if not isinstance(entries, list):
            message = (
                "shared must be a list of {select: ..., <settings>} entries, got "
                f"{_type_name(entries)}"
            )
            self._refuse(("shared",), "shared", message)
            return
        for index, entry in enumerate(entries):
            problem = self._shared_entry(index, entry)
            if problem is not None:
                self._refuse(("shared", index), f"shared[{index}]", f"shared[{index}]{problem}")

    def _shared_entry(self, index: int, entry: object) -> str | None:
        if not isinstance(entry, Mapping):
            return f" must be a mapping, got {_type_name(entry)}"
        if "select" not in entry:
            return " has no select; name the stages it is for, e.g. select: {engine: true}"
        selected = self._selected(entry["select"])
        if isinstance(selected, str):
            return f".select{selected}"
        settings = {key: value for key, value in entry.items() if key != "select"}
        if not settings:
            return " sets nothing; write the settings beside select"
        for name in selected:
            for key, value in settings.items():
                self._value(
                    ("shared", index, key),
                    ("stages", name),
                    value,
                    Specificity.SHARED,
                    detail=f"shared[{index}]",
                )
        return None

    def _selected(self, select: object) -> list[str] | str:
        """Return the selected stage names, or the end of a sentence that begins at `select`."""
        stages = self._grammar.stages
        if not isinstance(select, Mapping) or not select:
            return " must be a non-empty mapping"
        unknown = [key for key in select if key not in ("stages", "engine", "exclude")]
        if unknown:
            return f" has unknown selector(s) {unknown}; use stages, engine or exclude"
        for key in ("stages", "exclude"):
            names = select.get(key, [])
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                return f".{key} must be a list of stage names, got {names!r}"
            missing = [name for name in names if name not in stages]
            if missing:
                hint = nearest(missing[0], stages)
                return (
                    f".{key} names unknown stage(s) {missing}; this pipeline has: "
                    f"{', '.join(stages)}"
                    + (f"\n  did you mean: {', '.join(hint)}" if hint else "")
                )
        engine = select.get("engine")
        if engine is not None and not isinstance(engine, bool):
            return f".engine must be true or false, got {engine!r}"
        chosen = [
            name
            for name, group in stages.items()
            if name in select.get("stages", stages)
            and name not in select.get("exclude", ())
            and (engine is None or ("engine" in group.children) == engine)
        ]
        return chosen or " matches no stage of this pipeline"

    def _value(
        self,
        keys: tuple[object, ...],
        prefix: Path,
        value: object,
        specificity: Specificity,
        detail: str = "",
    ) -> None:
        """Read the value at `keys`, whose last key stands below the setting `prefix`."""
        key = keys[-1]
        if not isinstance(key, str) or not key:
            at = format_path(prefix) or "the file"
            return self._refuse(
                keys, format_path(prefix), f"{at} has the key {key!r}; a key is text"
            )
        path = (*prefix, key)
        address = self._attempt(keys, lambda: self._compile(prefix, key))
        if address is None:
            return None
        below = isinstance(address.node, (Group, Keyed)) or self._is_free(address)
        if isinstance(value, Mapping) and below:
            for inner, inner_value in value.items():
                self._value((*keys, inner), address.path, inner_value, specificity, detail)
            if value or not self._is_free(address):
                return None
        elif isinstance(address.node, (Group, Keyed)) and value is not None:
            return self._refuse(
                keys, format_path(path), f"{address} must be a mapping, got {_type_name(value)}"
            )
        read = self._attempt(keys, lambda: _read(address, value, self._body.text_of(keys)))
        if read is not None:
            self.patches.append(
                Patch(
                    address,
                    value,
                    read[0],
                    self._body.source_of(keys, detail),
                    self._body.layer,
                    specificity,
                )
            )
        return None

    def _compile(self, prefix: Path, key: str) -> Address:
        try:
            return (
                self._grammar.compile((*prefix, key)) if prefix else self._grammar.compile_top(key)
            )
        except ConfigError:
            if "." in key:
                message = _nested_spelling(prefix, key)
                raise ConfigError([Problem(format_path((*prefix, key)), message)]) from None
            raise

    @staticmethod
    def _is_free(address: Address) -> bool:
        return getattr(address.node, "free", False) and not isinstance(address.node, Group)

    def _attempt(self, keys: tuple[object, ...], step: Callable[[], _T]) -> _T | None:
        try:
            return step()
        except ConfigError as error:
            self._report(keys, error)
            return None

    def _report(self, keys: tuple[object, ...], error: ConfigError) -> None:
        where = self._body.source_of(keys).where
        self.problems += [replace(problem, where=where) for problem in error.problems]

    def _refuse(self, keys: tuple[object, ...], path: str, message: str) -> None:
        self.problems.append(Problem(path, message, self._body.source_of(keys).where))


def _read(address: Address, value: object, text: str | None) -> tuple[object]:
    if isinstance(address.node, (Group, Keyed)):
        return (value,)
    try:
        return (address.node.type.read_value(value, text),)
    except ScalarError as error:
        raise ConfigError([Problem(str(address), f"{address} {error}")]) from None


def _nested_spelling(prefix: Path, key: str) -> str:
    lines = [f"the key '{key}' is a flag's spelling; in a file write it nested:", ""]
    for depth, segment in enumerate((*prefix, *key.split("."))):
        lines.append(f"    {'  ' * depth}{segment}:")
    lines[-1] += " ..."
    return "\n".join(lines)


def _type_name(value: object) -> str:
    return "null" if value is None else type(value).__name__


def config_class_name(body: Body) -> str | None:
    """Return `config_cls` of a body; null when it has none or it is not text."""
    name = body.values.get("config_cls")
    return name if isinstance(name, str) else None
