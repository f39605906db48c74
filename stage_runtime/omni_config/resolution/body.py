"""The body of a configuration file or object, as patches.

`spec.config` of an OmniPipeline, a profile's ConfigMap and a YAML file share this shape word for
word: `config_cls`, `model_path`, other top-level settings, `stages:` by name, and `shared:`
selector lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from omni_config.errors import ConfigError, Problem
from omni_config.resolution.document import Mark
from omni_config.resolution.grammar import Address, Grammar, Leaf
from omni_config.resolution.paths import Path, format_path
from omni_config.resolution.scalars import ScalarError
from omni_config.resolution.selector import SelectorError, select_stages
from omni_config.resolution.sources import Layer, Patch, Source, Specificity

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

    @property
    def title(self) -> str:
        """What messages call the whole of it."""
        kind = "Config file" if self.source.kind == "yaml file" else self.source.kind
        return f"{kind} '{self.source.origin}'"

    def source_of(self, keys: tuple[object, ...], detail: str = "") -> Source:
        """Return the source of the value at `keys`, at its own line."""
        mark = _nearest(self.marks, keys)
        manager = _nearest(self.managers, keys)
        if mark is None and manager is None and not detail:
            return self.source
        line = mark.line if mark else None
        return replace(self.source, line=line, detail=detail, manager=manager)

    def text_of(self, keys: tuple[object, ...]) -> str | None:
        """Return a scalar as it was spelt, when known."""
        mark = self.marks.get(keys)
        return mark.text if mark else None


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
                self._refuse((key,), key, f"{self._body.title}: {REMOVED_TOP_KEYS[key]}")
            else:
                self._value((key,), None, value, Specificity.EXPLICIT)

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
                stage = self._grammar.stage(name)
                for key, value in settings.items():
                    self._value((*keys, key), stage, value, Specificity.EXPLICIT)

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
        try:
            selected = select_stages(entry["select"], self._grammar.stages)
        except SelectorError as error:
            return f".select{error}"
        settings = {key: value for key, value in entry.items() if key != "select"}
        if not settings:
            return " sets nothing; write the settings beside select"
        for name in selected:
            stage = self._grammar.stage(name)
            for key, value in settings.items():
                keys = ("shared", index, key)
                self._value(keys, stage, value, Specificity.SHARED, f"shared[{index}]")
        return None

    def _value(
        self,
        keys: tuple[object, ...],
        parent: Address | None,
        value: object,
        specificity: Specificity,
        detail: str = "",
    ) -> None:
        """Read the value at `keys`, whose last key stands below the setting `parent`."""
        try:
            address = self._compile(parent, keys[-1])
            # An empty mapping at a free key is a value for its consumer; elsewhere it is nothing.
            open_ended = not address.is_leaf and (value or not address.is_free)
            if isinstance(value, Mapping) and open_ended:
                for key, inner in value.items():
                    self._value((*keys, key), address, inner, specificity, detail)
                return
            read = _read(address, value, self._body.text_of(keys))
        except ConfigError as error:
            self._report(keys, error)
            return
        source = self._body.source_of(keys, detail)
        self.patches.append(Patch(address, value, read, source, self._body.layer, specificity))

    def _compile(self, parent: Address | None, key: object) -> Address:
        prefix = parent.path if parent is not None else ()
        if not isinstance(key, str) or not key:
            at = format_path(prefix) or "the file"
            message = f"{at} has the key {key!r}; a key is text"
            raise ConfigError([Problem(format_path(prefix), message)])
        try:
            if parent is None:
                return self._grammar.compile_top(key)
            return self._grammar.below(parent, key)
        except ConfigError:
            if "." not in key:
                raise
            problem = Problem(format_path((*prefix, key)), _nested_spelling(prefix, key))
            raise ConfigError([problem]) from None

    def _report(self, keys: tuple[object, ...], error: ConfigError) -> None:
        where = self._body.source_of(keys).where
        self.problems += [replace(problem, where=where) for problem in error.problems]

    def _refuse(self, keys: tuple[object, ...], path: str, message: str) -> None:
        self.problems.append(Problem(path, message, self._body.source_of(keys).where))


def _read(address: Address, value: object, text: str | None) -> object:
    node = address.node
    if not isinstance(node, Leaf):
        if value is None:
            return None
        message = f"{address} must be a mapping, got {_type_name(value)}"
        raise ConfigError([Problem(str(address), message)])
    try:
        return node.type.read_value(value, text)
    except ScalarError as error:
        raise ConfigError([Problem(str(address), f"{address} {error}")]) from None


_Found = TypeVar("_Found")


def _nearest(
    values: Mapping[tuple[object, ...], _Found], keys: tuple[object, ...]
) -> _Found | None:
    """Return what is known about the value at `keys`, or about the nearest one around it."""
    if not values:
        return None
    for end in range(len(keys), -1, -1):
        found = values.get(keys[:end])
        if found is not None:
            return found
    return None


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
