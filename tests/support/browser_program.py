"""Whether this machine can show the page to itself."""

from __future__ import annotations

import shutil

from scripts.packages import PURPOSES


def chromium() -> str | None:
    """Return the path of Chromium, or None where there is none."""
    names = PURPOSES["browser"]["chromium"]
    return next((path for name in names if (path := shutil.which(name))), None)


def why_no_browser() -> str | None:
    """Return what is missing for tests of the page, or None."""
    return None if chromium() else "needs Chromium: `python3 scripts/packages.py browser`, as root"
