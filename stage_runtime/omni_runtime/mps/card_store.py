"""The state of one card on disk: the daemon's directories, who owns it, which process it is.

    <root>/<card>.lock           held while the state is read and changed
    <root>/<card>/pipe, log      the daemon's own
    <root>/<card>/daemon.json    which process the daemon is
    <root>/<card>/owners/<run>   locked by its owner for as long as that lives

Everything is private to one user. The locks are advisory and belong to this host's kernel, which is
why a state directory is never shared between hosts.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from omni_runtime.mps.errors import MpsRefused
from omni_runtime.mps.lease_rules import OwnerSeen
from omni_runtime.mps.process_identity import ProcessIdentity

_PRIVATE = 0o700
_LOCK_RETRY_SECONDS = 0.05
_LOCK_SECONDS = 90.0
"""Longer than the longest release, which holds the lock only while it decides."""


class CardStore:
    """The state directory of one card."""

    def __init__(self, root: Path, card: str) -> None:
        self.root, self.card = root, card
        self.path = root / card
        self.pipe, self.log = self.path / "pipe", self.path / "log"
        self._owners, self._record = self.path / "owners", self.path / "daemon.json"

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the card alone.

        Raises:
            MpsRefused: the root is not private, or another launcher holds the card for too long.
        """
        make_private(self.root)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.root / f"{self.card}.lock", flags, 0o600)
        try:
            await self._take_lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    @property
    def exists(self) -> bool:
        """Whether anyone left state here."""
        return self.path.exists()

    def create(self) -> None:
        """Make the empty state directory."""
        for folder in (self.path, self.pipe, self.log, self._owners):
            folder.mkdir(mode=_PRIVATE)

    def remove(self) -> None:
        """Remove the state directory with everything in it."""
        shutil.rmtree(self.path)

    def publish_owner(self, name: str, status: str) -> int:
        """Create an owner file and lock it; the returned descriptor keeps the owner alive."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(self._owners / name, flags, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_status(descriptor, status)
        return descriptor

    def owners(self, own: str | None = None) -> tuple[OwnerSeen, ...]:
        """Return every owner file.

        Args:
            own: the asker's own, which is alive by definition.
        """
        found = []
        for path in sorted(self._owners.iterdir()):
            alive = path.name == own or _is_locked(path)
            found.append(OwnerSeen(path.name, alive, path.read_text()))
        return tuple(found)

    def forget_owner(self, name: str) -> None:
        """Remove an owner file."""
        (self._owners / name).unlink()

    def record_daemon(self, identity: ProcessIdentity) -> None:
        """Write down which process the daemon is."""
        self._record.write_text(json.dumps(asdict(identity)))

    def recorded_daemon(self) -> ProcessIdentity | None:
        """Return which process the daemon was when it started; null when never written down."""
        try:
            return ProcessIdentity(**json.loads(self._record.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise MpsRefused(f"{self._record} is damaged: {error}") from error

    async def _take_lock(self, descriptor: int) -> None:
        try:
            async with asyncio.timeout(_LOCK_SECONDS):
                while True:
                    if _try_lock(descriptor):
                        return
                    await asyncio.sleep(_LOCK_RETRY_SECONDS)
        except TimeoutError:
            raise MpsRefused(
                f"another launcher has held {self.root / self.card}.lock for {_LOCK_SECONDS:g} s"
            ) from None


def write_status(descriptor: int, status: str) -> None:
    """Replace the content of an owner file."""
    os.pwrite(descriptor, status.encode(), 0)
    os.ftruncate(descriptor, len(status))


def make_private(root: Path) -> None:
    """Create the root, or make sure that it is a directory that only this user can use.

    Raises:
        MpsRefused: it is a link, another user's, or open to others.
    """
    root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise MpsRefused(f"{root} is a link or belongs to another user; it must be yours alone")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise MpsRefused(f"{root} is open to other users; make it private: chmod 700 {root}")


def _is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
