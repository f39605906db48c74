"""Writing to a terminal, a file or a pipe.

A line is made of spans, a span of text and a style. Styles show on a terminal only; the text is the
same everywhere and never wrapped, so that what a person copies from a terminal is what a program
reads from a pipe.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TextIO


class Format(StrEnum):
    """How a result is printed."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line. `style` is a style of Rich, empty for none."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


def line(text: str = "", style: str = "") -> Line:
    """Return a line of one span."""
    return (Span(text, style),)


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines to standard output."""
    if not is_decorated(sys.stdout):
        for spans in lines:
            sys.stdout.write("".join(span.text for span in spans) + "\n")
        return
    # Rich costs a tenth of a second, which a pipe need not pay.
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for spans in lines:
        console.print(Text.assemble(*((span.text, span.style) for span in spans)))


def print_data(data: object, format: Format) -> None:
    """Print plain data as JSON or YAML."""
    if format is Format.JSON:
        text = json.dumps(_json_values(data), indent=2, ensure_ascii=False)
        sys.stdout.write(f"{text}\n")
        return
    import yaml

    sys.stdout.write(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100))


def print_errors(messages: Iterable[str]) -> None:
    """Print errors to standard error."""
    _print_labelled("Error:", "1;31", messages)


def print_warnings(messages: Iterable[str]) -> None:
    """Print warnings to standard error."""
    _print_labelled("Warning:", "1;33", messages)


def is_decorated(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that wants colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def speaks_unicode(stream: TextIO) -> bool:
    """Return whether a stream can show box-drawing characters."""
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")


def _json_values(data: object) -> object:
    """Return data with what YAML has and JSON has not, such as dates and infinity, as text."""
    if isinstance(data, Mapping):
        return {str(key): _json_values(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_json_values(item) for item in data]
    if isinstance(data, float):
        return data if math.isfinite(data) else str(data)
    return data if data is None or isinstance(data, str | int) else str(data)


def _print_labelled(label: str, colour: str, messages: Iterable[str]) -> None:
    shown = f"\033[{colour}m{label}\033[0m" if is_decorated(sys.stderr) else label
    for message in messages:
        sys.stderr.write(f"{shown} {message}\n")
