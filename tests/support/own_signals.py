"""Runs inside the test's own process, which end by signals to that process."""

from __future__ import annotations

import asyncio
import os
import signal


async def ended_by_signal(run: asyncio.Task[int]) -> None:
    """Ask a run to stop, as Kubernetes or a user does, and wait until it has.

    Once and only while it listens: a run that is about to end does not any more, and the signal
    would end the tests.
    """
    if not run.done() and signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait([run])
