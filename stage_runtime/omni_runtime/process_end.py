"""Waits for the end of a process that need not be a child, without polling."""

from __future__ import annotations

import asyncio
import os
import sys


async def process_ended(pid: int) -> None:
    """Return when a process has ended; at once when there is none. A child stays to be reaped."""
    if sys.platform != "linux":
        await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
