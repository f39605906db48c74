"""YAML files with their line numbers.

PyYAML's own loader drops positions, lets the last of two equal keys win and knows no bound on
aliases. Here each value keeps the line and the text it was written with, so that an error can point
at it and a number written for a text setting is taken as it was spelt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from omni_config.errors import ConfigError, Problem

MAX_NODES = 100_000
"""Bound on the values of one document after aliases are expanded; a configuration has a few
hundred."""

MAX_DEPTH = 64
"""Bound on nesting; settings are a handful of levels deep."""

_SHOWN = 40
_MERGE_TAG = "tag:yaml.org,2002:merge"
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Mark:
    """Where one value was written: its line (from 1) and, for a scalar, its text."""

    line: int
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed mapping and the mark of every value in it, by path of keys and list indexes."""

    origin: str
    body: Mapping[object, object]
    marks: Mapping[tuple[object, ...], Mark]

    def line_of(self, path: tuple[object, ...]) -> int | None:
        """Return the line of the nearest marked value at or above `path`."""
        for end in range(len(path), -1, -1):
            mark = self.marks.get(path[:end])
            if mark is not None:
                return mark.line
        return None


def read_document(path: Path | str) -> Document:
    """Read a configuration file.

    Raises:
        ConfigError: the file is missing, unreadable, not UTF-8, not YAML, or not a mapping.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise _refused(f"Config file '{path}' does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(f"Config file '{path}' cannot be read: {error}") from error
    return parse_document(text, str(path))


def parse_document(text: str, origin: str) -> Document:
    """Parse configuration text; `origin` names it in messages.

    Raises:
        ConfigError: the text is not YAML or not a mapping, with line and column where known.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise _refused(f"Config file '{origin}' must contain a mapping")
        builder = _Builder(loader)
        body = builder.mapping(node, ())
    except yaml.YAMLError as error:
        detail = str(error).replace('"<unicode string>"', f'"{origin}"')
        detail = detail.replace('"<byte string>"', f'"{origin}"')
        raise _refused(f"Config file '{origin}' is not valid YAML: {detail}") from error
    finally:
        loader.dispose()
    return Document(origin, body, builder.marks)


def _refused(message: str) -> ConfigError:
    return ConfigError([Problem("", message)])


class _Builder:
    """Builds plain values from nodes, noting each one's mark."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader = loader
        self._open: set[int] = set()
        self._nodes = 0
        self.marks: dict[tuple[object, ...], Mark] = {}

    def mapping(self, node: yaml.MappingNode, path: tuple[object, ...]) -> dict[object, object]:
        self._enter(node)
        self.marks.setdefault(path, Mark(node.start_mark.line + 1))
        values: dict[object, object] = {}
        merged: list[yaml.MappingNode] = []
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE_TAG:
                merged += self._merge_sources(value_node)
                continue
            key = self._key(key_node)
            if key in values:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicate mapping key {key!r}", key_node.start_mark
                )
            values[key] = self._value(value_node, (*path, key), key_node.start_mark.line + 1)
        for source in merged:
            for key, value in self.mapping(source, path).items():
                values.setdefault(key, value)
        self._open.discard(id(node))
        return values

    def _value(self, node: yaml.Node, path: tuple[object, ...], line: int) -> object:
        if isinstance(node, yaml.MappingNode):
            self.marks.setdefault(path, Mark(line))
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            self._enter(node)
            self.marks.setdefault(path, Mark(line))
            items = [
                self._value(item, (*path, index), item.start_mark.line + 1)
                for index, item in enumerate(node.value)
            ]
            self._open.discard(id(node))
            return items
        self._count(node)
        self.marks.setdefault(path, Mark(line, node.value))
        return self._scalar(node)

    def _key(self, node: yaml.Node) -> object:
        self._count(node)
        if not isinstance(node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(
                None, None, "a mapping key must be a single word", node.start_mark
            )
        return self._scalar(node)

    def _scalar(self, node: yaml.Node) -> object:
        try:
            value: object = self._loader.construct_object(node)
        except ValueError as error:
            # A date that is no day, or an integer of more digits than Python reads.
            raise yaml.constructor.ConstructorError(
                None, None, f"'{node.value[:_SHOWN]}' is no value: {error}", node.start_mark
            ) from error
        return value

    def _merge_sources(self, node: yaml.Node) -> list[yaml.MappingNode]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not all(isinstance(source, yaml.MappingNode) for source in sources):
            raise yaml.constructor.ConstructorError(
                None, None, "'<<' merges mappings only", node.start_mark
            )
        return list(sources)

    def _enter(self, node: yaml.Node) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise yaml.constructor.ConstructorError(
                None, None, f"nested deeper than {MAX_DEPTH}", node.start_mark
            )
        if id(node) in self._open:
            raise yaml.constructor.ConstructorError(
                None, None, "an alias contains itself", node.start_mark
            )
        self._open.add(id(node))
        self._count(node)

    def _count(self, node: yaml.Node) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise yaml.constructor.ConstructorError(
                None, None, f"more than {MAX_NODES} values after expanding aliases", node.start_mark
            )
