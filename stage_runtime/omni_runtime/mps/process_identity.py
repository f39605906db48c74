"""Which process a number means: numbers are reused, but not with start time and boot."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_BOOT_ID = _PROC / "sys/kernel/random/boot_id"
_START_TIME_FIELD = 21
"""Of /proc/<pid>/stat, counted from 0."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, of all that ever had its number.

    Attributes:
        start_ticks: clock ticks from boot to its start.
        boot_id: the boot it belongs to.
        pid_namespace: where its number means it.
    """

    pid: int
    start_ticks: int
    boot_id: str
    pid_namespace: str


def identity_of(pid: int) -> ProcessIdentity | None:
    """Return who has this process id now; null when nobody or only a zombie has."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the name in parentheses and may itself hold spaces and parentheses.
    fields = [str(pid), "", *stat[stat.rindex(")") + 2 :].split()]
    if fields[2] in ("Z", "X"):
        return None
    return ProcessIdentity(pid, int(fields[_START_TIME_FIELD]), boot_id(), pid_namespace())


def boot_id() -> str:
    """Return what names the current boot of this machine."""
    return _BOOT_ID.read_text().strip()


def pid_namespace() -> str:
    """Return what names the space in which this process sees process ids."""
    return os.readlink(_PROC / "self/ns/pid")


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment a process was started with; empty when it may not be read."""
    try:
        raw = (_PROC / str(pid) / "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return {}
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if entry)
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, _, value in pairs}


def processes_with(variable: str, value: str) -> tuple[int, ...]:
    """Return every process of this user that was started with that variable."""
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and environment_of(int(entry.name)).get(variable) == value:
            found.append(int(entry.name))
    return tuple(sorted(found))


def is_ours(pid: int) -> bool:
    """Return whether a process runs as this user."""
    try:
        return (_PROC / str(pid)).stat().st_uid == os.geteuid()
    except FileNotFoundError:
        return False
