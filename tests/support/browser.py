"""The machine's own Chromium, without a window."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, expect, sync_playwright

from tests.support.browser_program import chromium
from tests.support.patience import PATIENT_SECONDS

expect.set_options(timeout=PATIENT_SECONDS * 1000)

_FLAGS = (
    "--autoplay-policy=no-user-gesture-required",
    "--disable-gpu",
    # Containers give shared memory of 64 MB, which is not enough.
    "--disable-dev-shm-usage",
    # A microphone that hums, allowed without a question.
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
)


@contextmanager
def browser() -> Iterator[Browser]:
    """Run Chromium; it ends with the context."""
    # Chromium's sandbox refuses to run as root.
    flags = (*_FLAGS, "--no-sandbox") if os.geteuid() == 0 else _FLAGS
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=chromium(), args=list(flags))
        try:
            yield launched
        finally:
            launched.close()
