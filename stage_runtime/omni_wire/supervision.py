"""What a process owes to the launcher that started it: to die with it, and to say how far it is.

The launcher names itself and one end of a pipe in the environment. A process started by anything
else (a pod, a shell, a test) finds neither there, and every function here does nothing.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NoReturn

SUPERVISOR_PID_VARIABLE = "OMNI_SUPERVISOR_PID"
"""Process id of the launcher; set only when the process shall not outlive it."""
NOTIFY_FD_VARIABLE = "OMNI_NOTIFY_FD"
"""Write end of a pipe that takes lines of `KEY=value`."""

READY = "READY"
STATUS = "STATUS"
ADDRESS = "ADDRESS"
STOPPING = "STOPPING"
STUCK = "STUCK"
ALIVE = "ALIVE"

_PR_SET_PDEATHSIG = 1
_ORPHANED = 70


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the launcher is gone; call it first in `main`.

    The signal is sent when the launcher's *thread* that started this process ends, so launchers
    start processes from their main thread. Descendants do not inherit it.
    """
    written = os.environ.get(SUPERVISOR_PID_VARIABLE)
    if written is None or sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    # A launcher that died before the call above sends no signal any more.
    if os.getppid() != int(written):
        _exit_orphaned()


def notify_ready() -> None:
    """Say that work is accepted. A group is ready once its stages are built and every gateway has
    registered them; a gateway once every stage has a ready instance."""
    _notify(f"{READY}=1")


def notify_status(text: str) -> None:
    """Say in one line what is being done; also counts as progress of a slow start."""
    _notify(f"{STATUS}={' '.join(text.split())}")


def notify_address(address: str) -> None:
    """Say where clients connect, such as `127.0.0.1:8000`, once a free port was chosen."""
    _notify(f"{ADDRESS}={address}")


def notify_stopping() -> None:
    """Say that no new work is accepted."""
    _notify(f"{STOPPING}=1")


def notify_stuck() -> None:
    """Say that this process will not recover by itself, though it still runs."""
    _notify(f"{STUCK}=1")


def notify_alive(*, expected: bool = True) -> None:
    """Say that the main loop runs. Whoever says so and then falls silent is taken for stuck.

    Args:
        expected: whether this will be said again.
    """
    _notify(f"{ALIVE}={int(expected)}")


def _notify(line: str) -> None:
    descriptor = os.environ.get(NOTIFY_FD_VARIABLE)
    if descriptor is None:
        return
    try:
        # A write of less than PIPE_BUF bytes is never torn.
        os.write(int(descriptor), f"{line[:500]}\n".encode(errors="replace"))
    except (BrokenPipeError, BlockingIOError):
        # The launcher is gone or does not read; neither is this process's failure.
        return


def _exit_orphaned() -> NoReturn:
    sys.exit(_ORPHANED)
