"""One predicate decides whether a request speaks: routes, stream ends and terminals. Pure."""

from __future__ import annotations

from omni_wire.messages import Payload, RequestView


def speaks(request: RequestView | None) -> bool:
    """Whether sound is wanted: `output_modalities` is absent or names it."""
    wanted = None if request is None else request.metadata.get("output_modalities")
    return wanted is None or (isinstance(wanted, (list, tuple)) and "audio" in wanted)


def route(payload: Payload) -> tuple[str, ...]:
    """Return the targets of `writer`, for its payload and for its stream's end alike."""
    return ("text", "speaker") if speaks(payload.request) else ("text",)


def terminals(request: RequestView) -> tuple[str, ...]:
    """Return the terminal stages a request ends at."""
    return ("text", "sound") if speaks(request) else ("text",)
