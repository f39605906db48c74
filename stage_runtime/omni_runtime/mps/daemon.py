"""The daemon of one card: started and proven, ended and cleared away."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass

from omni_runtime.mps.card_inspection import proven_identity
from omni_runtime.mps.card_store import CardStore
from omni_runtime.mps.control import MpsControl
from omni_runtime.mps.errors import MpsControlFailed
from omni_runtime.mps.lease_rules import Rebuild
from omni_runtime.mps.process_identity import ProcessIdentity
from omni_runtime.process_end import process_ended


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long to wait, in seconds.

    Attributes:
        answer: for any answer of the control program, and for a started daemon to answer.
        attach: for a ready process to be seen attached.
        leave: for clients to go before a lease is given back.
        quit: for the daemon to end.
        look_again: between two looks at something that changes.
    """

    answer: float = 5.0
    attach: float = 30.0
    leave: float = 60.0
    quit: float = 10.0
    look_again: float = 0.2


async def start_daemon(
    store: CardStore, control: MpsControl, device: str, times: LeaseTimes
) -> ProcessIdentity:
    """Start the daemon, prove who it is, write that down and wait for an answer.

    Raises:
        MpsProgramMissing: nothing was executed.
        MpsControlFailed: it did not start or does not answer; it may run all the same.
    """
    await control.start(device)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + times.answer
    while (identity := proven_identity(store, control)) is None:
        if loop.time() > deadline:
            raise MpsControlFailed(
                f"no process wrote its id into {store.pipe} within {times.answer:g} s"
            )
        await asyncio.sleep(times.look_again)
    store.record_daemon(identity)
    await control.servers()
    return identity


async def quit_daemon(control: MpsControl, pid: int, times: LeaseTimes) -> None:
    """Ask a proven daemon to end, and wait until it has.

    Raises:
        MpsControlFailed: it does not answer or does not end.
    """
    try:
        async with asyncio.timeout(times.quit):
            await control.quit()
            await process_ended(pid)
    except TimeoutError:
        raise MpsControlFailed(f"daemon {pid} did not quit within {times.quit:g} s") from None


async def clear(
    store: CardStore, control: MpsControl, rebuild: Rebuild, pid: int | None, times: LeaseTimes
) -> None:
    """Remove what is left of a card that nobody uses, its proven daemon included.

    Raises:
        MpsControlFailed: the daemon does not end.
    """
    if rebuild.quit and pid is not None:
        await quit_daemon(control, pid, times)
    if rebuild.terminate is not None:
        await _terminate(rebuild.terminate, times)
    store.remove()


async def _terminate(pid: int, times: LeaseTimes) -> None:
    try:
        async with asyncio.timeout(times.quit):
            os.kill(pid, signal.SIGTERM)
            await process_ended(pid)
    except ProcessLookupError:
        return
    except TimeoutError:
        raise MpsControlFailed(f"daemon {pid} did not end after SIGTERM") from None
