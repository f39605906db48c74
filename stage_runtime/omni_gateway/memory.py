"""How much memory this gateway may use, and what share of it clients may fill with what they send.

Who fills more has the kernel end the process, and with it everybody's requests.
"""

from __future__ import annotations

import os
from pathlib import Path

CLIENTS_PART = 8
"""One part in so many is for what clients send, over each of the two APIs. A body takes more than
itself while it is read: its text, its decoded copy and its media exist side by side, which makes
four times its size for media and seven for plain text. JSON of many tiny values makes far more."""
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def usable_memory_bytes(limit_file: Path = _CGROUP_LIMIT) -> int:
    """Return how much memory the machine and the cgroup leave to this process."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = limit_file.read_text().strip()
    except OSError:
        return machine
    return machine if limit == "max" else min(machine, int(limit))


def clients_share_bytes(most: int, memory_bytes: int) -> int:
    """Return how much of the memory clients may fill, at most so many bytes."""
    return min(most, memory_bytes // CLIENTS_PART)
