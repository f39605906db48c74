"""What xgrammar says of a grammar it cannot take, for people. Pure."""

from __future__ import annotations

import re

_PLACE_IN_ITS_SOURCE = re.compile(r"\[\d\d:\d\d:\d\d\] \S+:\d+: ?")
_CHECK = re.compile(r"Check failed: \([^)]*\)+ is false: ")
_LONGEST = 500


def problem_of(message: str) -> str:
    """Return the message without the clock and the place in xgrammar's source, on one line."""
    problem = _CHECK.sub("", _PLACE_IN_ITS_SOURCE.sub("", message))
    return " ".join(problem.split())[:_LONGEST]
