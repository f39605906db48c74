"""One predicate decides whether a request is answered aloud. Pure."""

from __future__ import annotations

from omni_wire.messages import Payload, RequestView


def speaks(request: RequestView | None) -> bool:
    """Whether sound is wanted: `output_modalities` is absent or names it."""
    wanted = None if request is None else request.metadata.get("output_modalities")
    return wanted is None or (isinstance(wanted, (list, tuple)) and "audio" in wanted)


def route(payload: Payload) -> tuple[str, ...]:
    """Return the targets of `writer`, for its payload and for its stream's end alike."""
    return terminals(payload.request)


def terminals(request: RequestView | None) -> tuple[str, ...]:
    """Return the terminal stages a request ends at."""
    return ("decode", "code2wav") if speaks(request) else ("decode",)
