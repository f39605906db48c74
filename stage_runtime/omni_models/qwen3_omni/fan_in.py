"""How the awaited payloads of a request become one. Pure.

Preprocessing says what the prompt is; the encoders bring the rows for its media. Which of them are
awaited is `routing`'s business, so nothing is looked for here that may be absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from omni_wire.errors import StageFailed
from omni_wire.messages import Payload, Tree

PROMPT_KEYS = ("prompt", "media")


def merge_thinker_inputs(payloads: Mapping[str, Payload]) -> Payload:
    """Hook `merge_fn` of mm_aggregate and thinker: prompt, and embeddings of media by kind."""
    merged = merge_talker_inputs(payloads)
    embeddings: dict[str, Tree] = {}
    for source, payload in payloads.items():
        if source != "preprocessing":
            embeddings |= _part(payload, "embeddings")
    return replace(
        merged, data={**cast("Mapping[str, Tree]", merged.data), "embeddings": embeddings}
    )


def merge_talker_inputs(payloads: Mapping[str, Payload]) -> Payload:
    """Hook `merge_fn` of the talker: the prompt; media reach it as the thinker's hidden rows."""
    payload = payloads["preprocessing"]
    return replace(payload, data={key: _part(payload, key) for key in PROMPT_KEYS})


def _part(payload: Payload, key: str) -> Mapping[str, Tree]:
    part = payload.data.get(key) if isinstance(payload.data, Mapping) else None
    if not isinstance(part, Mapping):
        raise StageFailed(f"the payload of {payload.source} has no '{key}'")
    return part
