"""The path language: dotted addresses of settings.

A path is a stage name or a top-level field, then one segment per level:
`thinker.engine.mem_fraction_static`, `processes.talker_ar.num_replicas`. Below `stages.` in a file
and after an implied `stages.` on the command line the same segments mean the same setting. A key
that itself contains a dot is quoted: `vocoder.env."A.B"`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from omni_config.errors import ConfigError, Problem

Path = tuple[str, ...]

_SEGMENT = re.compile(r'"([^"]*)"|([^."]*)')


def format_path(path: Sequence[str]) -> str:
    """Return the dotted spelling, quoting segments that contain a dot."""
    return ".".join(f'"{segment}"' if "." in segment else segment for segment in path)


def split_path(text: str) -> Path:
    """Split a dotted spelling into segments.

    Raises:
        ConfigError: a segment is empty or a quote is not closed.
    """
    segments: list[str] = []
    position = 0
    while True:
        match = _SEGMENT.match(text, position)
        segment = match and (match[1] if match[1] is not None else match[2])
        if not match or not segment:
            raise path_error(text, f"Config path '{text}' has an empty segment")
        segments.append(segment)
        position = match.end()
        if position == len(text):
            return tuple(segments)
        if text[position] != ".":
            raise path_error(text, f"Config path '{text}' has a misplaced quote")
        position += 1


def path_error(path: str, message: str, suggestions: Sequence[str] = ()) -> ConfigError:
    """Return the error for one path that means nothing."""
    return ConfigError([Problem(path, message, suggestions=tuple(suggestions))])
