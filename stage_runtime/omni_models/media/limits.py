"""Bounds of what one request may make this machine fetch and decode."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from omni_models.media.errors import MediaTimeout


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """Bounds of one media item.

    Attributes:
        max_bytes: encoded size.
        max_pixels: of a picture, or of one frame of a video.
        max_seconds: length of a sound or video.
        timeout_seconds: for fetching and decoding all media of a request.
        max_items: media items in one request.
    """

    max_bytes: int = 256 << 20
    max_pixels: int = 64 << 20
    max_seconds: float = 3600.0
    timeout_seconds: float = 30.0
    max_items: int = 128


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """Where media may come from.

    Attributes:
        hosts: hosts that may be fetched from, whatever their address; `*.example.com` stands for
            all below it. Empty: any host whose addresses are all public, on its default port.
        folder: folder that local files are read from; None reads none.
    """

    hosts: tuple[str, ...] = ()
    folder: Path | None = None

    def names(self, host: str) -> bool:
        """Return whether `hosts` names a host."""
        host = host.rstrip(".").lower()
        for allowed in (name.lower() for name in self.hosts):
            if host == allowed or (allowed.startswith("*.") and host.endswith(allowed[1:])):
                return True
        return False


class Deadline:
    """A point in time that work on a request's media must not pass.

    Args:
        seconds: from now.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._at = time.monotonic() + seconds

    def left(self, where: str) -> float:
        """Return the seconds left.

        Raises:
            MediaTimeout: there are none; `where` is the part being worked on.
        """
        left = self._at - time.monotonic()
        if left <= 0:
            raise MediaTimeout(
                f"{where}: the request's media took longer than {self._seconds:g} s",
                details={"field": where},
            )
        return left
