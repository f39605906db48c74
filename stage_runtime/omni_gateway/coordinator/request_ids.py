"""Names that clients may give to requests."""

from __future__ import annotations

from omni_wire.errors import InvalidRequest

LONGEST = 128
"""Characters of a request id; it stands in every log line and every frame."""


def checked_id(request_id: str) -> str:
    """Return a request id that can be used.

    Raises:
        InvalidRequest: it is empty, too long, or would break a log line.
    """
    if request_id.isprintable() and 0 < len(request_id) <= LONGEST:
        return request_id
    raise InvalidRequest(
        f"a request id has 1 to {LONGEST} printable characters", details={"field": "request_id"}
    )
