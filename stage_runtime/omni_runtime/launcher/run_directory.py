"""The private directory of one run: sockets, the resolved configuration, nothing after the end.

A launcher that was killed cannot remove its directory. It held a lock on it, though, so the next
run recognises what nobody owns any more and removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omni_config.errors import OmniError

LAUNCHER_FOLDER = "up"
_LOCK = "lock"
_SHARED_BASE_MODE = 0o1777


class UnsafeDirectory(OmniError):
    """The base directory could be tampered with by another user."""


@contextmanager
def run_directory(path: Path) -> Iterator[Path]:
    """Create the directory of a run, hold it, and remove it with everything in it at the end.

    Yields:
        the launcher's own folder in it.

    Raises:
        UnsafeDirectory: another user owns the directory above it and could replace what is inside.
        FileExistsError: the directory exists, so its run id is not fresh.
    """
    _make_base(path.parent)
    remove_abandoned(path.parent)
    path.mkdir(mode=0o700)
    lock = _new_lock(path)
    try:
        folder = path / LAUNCHER_FOLDER
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def remove_abandoned(base: Path) -> list[Path]:
    """Remove run directories whose launcher is gone; return them."""
    removed = []
    for path in base.iterdir():
        lock = _abandoned_lock(path) if _is_ours(path) else None
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
            removed.append(path)
    return removed


def _make_base(base: Path) -> None:
    try:
        base.mkdir(parents=True)
        base.chmod(_SHARED_BASE_MODE)
    except FileExistsError:
        found = base.lstat()
        sticky = found.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(found.st_mode) or not (sticky or found.st_uid in (0, os.geteuid())):
            raise UnsafeDirectory(
                f"{base} belongs to another user, who could replace the sockets in it; "
                "set endpoints.base_path to a directory of yours"
            ) from None


def _is_ours(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _new_lock(path: Path) -> int:
    """Create the lock of a run, locked before anyone can see it under its name."""
    hidden = path / f".{_LOCK}"
    descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    hidden.rename(path / _LOCK)
    return descriptor


def _abandoned_lock(path: Path) -> int | None:
    """Return the lock of a run whose launcher is gone; null when it lives or this is no run."""
    try:
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
