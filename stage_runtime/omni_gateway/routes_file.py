"""The file by which an operator tells gateways of revisions; it changes while they run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from omni_gateway.coordinator import Routes
from omni_runtime.logging import EventLogger

logger = EventLogger(__name__)

LOOK_SECONDS = 1.0


async def follow_routes(path: Path, changed: Callable[[Routes], None]) -> None:
    """Report the routes in a file, and again whenever they change, until cancelled.

    A file that is absent or damaged changes nothing: what was known goes on serving.
    """
    known: bytes | None = None
    while True:
        content = _content(path)
        if content is not None and content != known:
            known = content
            _report(content, changed)
        await asyncio.sleep(LOOK_SECONDS)


def parse_routes(content: bytes) -> Routes:
    """Return the routes in `{"revisions": [{"name": …, "groups": {group: pod revision}}]}`.

    Raises:
        ValueError: it is not of that form.
    """
    try:
        rows = json.loads(content)["revisions"]
        return Routes(
            {
                str(row["name"]): {str(key): str(value) for key, value in row["groups"].items()}
                for row in rows
            }
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no routes: {error!r}") from error


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _report(content: bytes, changed: Callable[[Routes], None]) -> None:
    try:
        routes = parse_routes(content)
    except ValueError as error:
        logger.warning("routes file ignored", reason=error)
        return
    logger.info("routes", revisions=",".join(routes.revisions) or "-")
    changed(routes)
