"""Whether this machine can show the page to itself."""

from __future__ import annotations

import shutil

from scripts.chromium import NAMES


def chromium() -> str | None:
    """Return the path of Chromium, or None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def why_no_browser() -> str | None:
    """Return what is missing for tests of the page, or None."""
    return None if chromium() else "needs Chromium: `python3 scripts/chromium.py`, as root"
