"""Nearest real names for a misspelt one.

A suggestion is offered only when it is close: five arbitrary names help nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

MAX_SUGGESTIONS = 3
MIN_SIMILARITY = 0.6
"""Below this ratio of the standard difference matcher a name is a guess, not a spelling mistake."""

MIN_SHARE_OF_BEST = 0.9
"""A name this much less alike than the best one is noise beside it."""


def nearest(name: str, candidates: Iterable[str], limit: int = MAX_SUGGESTIONS) -> tuple[str, ...]:
    """Return up to `limit` candidates spelt like `name`, most similar first.

    Dashes and capitals never count as a difference, so `Mem-Fraction` finds `mem_fraction`.
    """
    spelling = {_normal(candidate): candidate for candidate in candidates}
    wanted = _normal(name)
    close = get_close_matches(wanted, spelling, n=limit, cutoff=MIN_SIMILARITY)
    least = MIN_SHARE_OF_BEST * _similarity(wanted, close[0]) if close else 0.0
    return tuple(spelling[match] for match in close if _similarity(wanted, match) >= least)


def _similarity(left: str, right: str) -> float:
    return SequenceMatcher(None, left, right).ratio()


def _normal(name: str) -> str:
    return name.lower().replace("-", "_")
