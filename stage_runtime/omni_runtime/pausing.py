"""Draining that can be called off: signals by which a supervisor takes a group out of use and back.

SIGUSR1 lets the group finish its requests and take no new one, SIGUSR2 takes it back into use. The
process ends for neither; SIGTERM is for that.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Those who only send the signals need neither numpy nor grpc.
    from omni_runtime.registration import Registration

PAUSE = signal.SIGUSR1
RESUME = signal.SIGUSR2


def ignore_until_registered() -> None:
    """Let a signal that comes too early mean nothing; by default it would end the process."""
    for number in (PAUSE, RESUME):
        signal.signal(number, signal.SIG_IGN)


def pause_on_signals(registration: Registration) -> None:
    """Follow the signals from now on."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(PAUSE, registration.start_draining)
    loop.add_signal_handler(RESUME, registration.stop_draining)
