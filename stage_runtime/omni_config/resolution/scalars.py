"""Values as users write them, read by the type their path declares.

Text from a command line and values from a file obey the same rules: nothing is lost on the way, so
a bool never becomes a number and 2.0 never becomes 2, at any depth of a list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BeforeValidator

from omni_config.units import parse_bytes

_FREE_WORDS = {"true": True, "false": False}
_BOOL_WORDS = {
    **_FREE_WORDS,
    **dict.fromkeys(("1", "yes", "on"), True),
    **dict.fromkeys(("0", "no", "off"), False),
}
_INTEGER = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_MAX_DIGITS = 300
"""More digits than this are text: no setting is that large, and a float could not hold it."""
_INTEGERS = re.compile(r"\s*-?[0-9]+\s*(,\s*-?[0-9]+\s*)+")


class ScalarError(ValueError):
    """A value does not fit the type of its path; the message completes `<path> …`."""


@dataclass(frozen=True, slots=True)
class ScalarType:
    """What one leaf accepts. `text` is the type as messages spell it."""

    text: str
    kinds: frozenset[type]
    choices: tuple[str, ...] = ()
    items: frozenset[type] = frozenset()
    nullable: bool = False
    size: bool = False
    any: bool = False

    @classmethod
    def free(cls) -> ScalarType:
        """Return the type of a key that only its consumer knows."""
        return cls("any", frozenset(), nullable=True, any=True)

    @classmethod
    def of(cls, annotation: object) -> ScalarType:
        """Return the type of an annotation made of scalars, literals, tuples and unions."""
        members = [_bare(member) for member in _members(annotation)]
        lists = [member for member in members if get_origin(member) is tuple]
        return cls(
            text=describe_type(annotation),
            kinds=frozenset(m for m in members if isinstance(m, type) and m is not NoneType),
            choices=tuple(c for m in members if get_origin(m) is Literal for c in get_args(m)),
            items=frozenset(m for m in map(_item, lists) if isinstance(m, type)),
            nullable=NoneType in members,
            size=any(_is_byte_count(member) for member in _members(annotation)),
        )

    @property
    def is_list(self) -> bool:
        return bool(self.items)

    def read_text(self, text: str) -> object:
        """Return the value a flag's text stands for.

        Raises:
            ScalarError: the text is a value of a type that does not fit.
        """
        if text.lower() == "none":
            return None
        if self.any:
            return _free_value(text)
        if self.size:
            count = _integer(text)
            return text if count is None else count
        if self.choices:
            return text
        if bool in self.kinds and text.lower() in _BOOL_WORDS:
            return _BOOL_WORDS[text.lower()]
        if self.is_list and _INTEGERS.fullmatch(text):
            numbers = [_integer(word.strip()) for word in text.split(",")]
            return text if None in numbers else numbers
        if self.kinds & {int, float, bool}:
            return self._number(text)
        if str in self.kinds:
            return text
        return _json_value(text)

    def read_value(self, value: object, text: str | None) -> object:
        """Return a file's value, checked; `text` is the scalar as it was spelt.

        Raises:
            ScalarError: reading the value by this type would lose something.
        """
        if self.any or value is None:
            return value
        if isinstance(value, list):
            self._check_items(value)
            return value
        if isinstance(value, bool) and {"on", "off"} & set(self.choices):
            # YAML 1.1 reads a bare `on` as true.
            return "on" if value else "off"
        if str in self.kinds and not isinstance(value, (str, list, dict)):
            return _spelling(value, text)
        self._check_lossy(value)
        return value

    def _number(self, text: str) -> object:
        value = _json_value(text) if text.startswith("[") else _free_value(text)
        if isinstance(value, list):
            self._check_items(value)
        elif not isinstance(value, str):
            self._check_lossy(value)
            if isinstance(value, int) and float in self.kinds and int not in self.kinds:
                return float(value)
        return value

    def _check_lossy(self, value: object) -> None:
        if isinstance(value, bool) and bool not in self.kinds and not self.size:
            raise ScalarError(f"expects {self.text}, got a boolean")
        if isinstance(value, float) and int in self.kinds and float not in self.kinds:
            raise ScalarError(f"expects an integer, got a float ({value})")

    def _check_items(self, values: Sequence[object]) -> None:
        for value in values:
            if isinstance(value, bool) and bool not in self.items:
                raise ScalarError(
                    f"expects {self.text}, got a boolean in the list ({list(values)})"
                )
            if isinstance(value, float) and float not in self.items:
                raise ScalarError(f"expects {self.text}, got a float in the list ({list(values)})")


def describe_type(annotation: object) -> str:
    """Return an annotation as messages spell it: `int | list[int] | None`."""
    return " | ".join(dict.fromkeys(_describe(member) for member in _members(annotation)))


def _describe(member: object) -> str:
    if _is_byte_count(member):
        return "bytes"
    bare = _bare(member)
    if bare is NoneType:
        return "None"
    if get_origin(bare) is tuple:
        return f"list[{_describe(get_args(bare)[0])}]"
    if get_origin(bare) is Literal:
        return f"Literal[{', '.join(map(repr, get_args(bare)))}]"
    return str(getattr(bare, "__name__", bare))


def _members(annotation: object) -> list[Any]:
    if get_origin(annotation) is Annotated and get_origin(get_args(annotation)[0]) in (
        Union,
        UnionType,
    ):
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        return [inner for member in get_args(annotation) for inner in _members(member)]
    return [annotation]


def _item(member: object) -> object:
    return _bare(get_args(member)[0])


def _bare(annotation: object) -> object:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def _is_byte_count(annotation: object) -> bool:
    if get_origin(annotation) is not Annotated:
        return False
    inner, *metadata = get_args(annotation)
    return _is_byte_count(inner) or any(
        isinstance(item, BeforeValidator) and item.func is parse_bytes for item in metadata
    )


def _free_value(text: str) -> object:
    """Read text as YAML 1.2 would: bool, int, float, a list or a mapping; else it stays text."""
    if text.lower() in _FREE_WORDS:
        return _FREE_WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        integer = _integer(text)
        return text if integer is None else integer
    if text[:1] in ("[", "{"):
        return _json_value(text)
    try:
        return float(text)
    except ValueError:
        return text


def _integer(text: str) -> int | None:
    return int(text) if len(text) <= _MAX_DIGITS and _INTEGER.fullmatch(text) else None


def _json_value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _spelling(value: object, text: str | None) -> str:
    if text is not None:
        return text
    return str(value).lower() if isinstance(value, bool) else str(value)
