"""Log-probabilities of tokens on their way from thinker to decode. Pure.

A frame has a row per answer, and few answers want any: their columns are there only where one does,
as wide as the widest wish, and empty where a row has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from omni_runtime.sglang_bridge.sampling import TokenLogprob

Arrays: TypeAlias = "dict[str, np.ndarray[Any, np.dtype[Any]]]"

OWN, TOP_TOKENS, TOP = "logprob", "top_token_id", "top_logprob"
NO_TOKEN = -1


def logprob_columns(rows: Sequence[Sequence[TokenLogprob]]) -> Arrays:
    """Return the columns for a frame's rows, each of which has one or none; none if all have none.

    The shapes: `logprob` float32 [rows], NaN for none; `top_token_id` int64 and `top_logprob`
    float32 [rows, widest], the former -1 where there is none.
    """
    if not any(rows):
        return {}
    widest = max(len(one.top) for row in rows for one in row)
    own = np.full(len(rows), np.nan, np.float32)
    tokens = np.full((len(rows), widest), NO_TOKEN, np.int64)
    values = np.zeros((len(rows), widest), np.float32)
    for index, row in enumerate(rows):
        for one in row:
            own[index] = one.logprob
            for place, (token, value) in enumerate(one.top):
                tokens[index, place], values[index, place] = token, value
    return {OWN: own, TOP_TOKENS: tokens, TOP: values}


def logprob_at(columns: Mapping[str, Any], row: int) -> TokenLogprob | None:
    """Return what the columns of a frame say of one row."""
    if OWN not in columns or np.isnan(columns[OWN][row]):
        return None
    top = [
        (int(token), float(value))
        for token, value in zip(columns[TOP_TOKENS][row], columns[TOP][row], strict=True)
        if token != NO_TOKEN
    ]
    return TokenLogprob(float(columns[OWN][row]), tuple(top))
