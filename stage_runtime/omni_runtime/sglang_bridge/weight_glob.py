"""One pattern for a few of a checkpoint's files. Pure.

SGLang lets a model name patterns of the weight files it wants, and uses the first that matches any.
So there has to be one that covers them all.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence


def covering_glob(names: Sequence[str]) -> str | None:
    """Return a pattern that matches every name, and few others; None where the names differ too
    much, and everything has to be read.

    Names of shards differ in a few digits, so the characters of each place are put together. What
    else that matches is read and left aside.
    """
    if not names or len(set(map(len, names))) > 1:
        return None
    places = (sorted(set(place)) for place in zip(*names, strict=True))
    return "".join(
        glob.escape(place[0]) if len(place) == 1 else f"[{''.join(place)}]" for place in places
    )
