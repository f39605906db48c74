"""Byte counts as users write them: an integer, or digits with a binary unit."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SPELLING = re.compile(r"([0-9]+)(KiB|MiB|GiB|TiB)")


def parse_bytes(value: object) -> int:
    """Return a byte count from `1024`, `"4KiB"`, `"2MiB"`, `"2GiB"` or `"1TiB"`.

    Raises:
        ValueError: any other spelling (`2 GiB`, `2GB`, `1.5GiB`, a bool), zero, or less.
    """
    count = _count(value)
    if count <= 0:
        raise ValueError("must be positive")
    return count


def format_gib(count: float) -> str:
    """Return a byte count in GiB with two decimals, as messages show it."""
    return f"{count / _UNITS['GiB']:.2f}GiB"


def _count(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SPELLING.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(
            "must be a positive integer byte count or an exact binary-size string ending in "
            "KiB, MiB, GiB, or TiB"
        )
    return int(match[1]) * _UNITS[match[2]]


ByteCount = Annotated[int, BeforeValidator(parse_bytes)]
"""A positive number of bytes; accepts the spellings of `parse_bytes`."""
