"""One process at a time builds stages on a GPU.

A stage sizes its memory by what is free while it is built; two that look at once would both claim
it. The kernel drops the lock when its holder dies, so a crash while building leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omni_runtime.logging import EventLogger

logger = EventLogger(__name__)


@contextmanager
def construction_lock(file: Path | None) -> Iterator[None]:
    """Hold the lock of a GPU; with None, hold nothing.

    Blocks without a limit: the holder may load weights for minutes, and whoever started this
    process watches how long it takes.

    Args:
        file: the lock file, created if need be and never removed, because removing it would let a
            third process lock a new file of the same name.

    Raises:
        OSError: the file cannot be opened.
    """
    if file is None:
        yield
        return
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _lock(descriptor, file)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, file: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        logger.info("waiting for another process to finish building", lock=file)
        started = time.monotonic()
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        logger.info("lock taken", lock=file, waited_seconds=f"{time.monotonic() - started:.1f}")
