"""The MPS control daemon as a container beside its clients: `python -m omni_runtime.mps.sidecar`.

`run` keeps the daemon in the foreground and ends it on SIGTERM; `check` asks it for its servers and
is what a start-up probe runs. Both find the daemon by CUDA_MPS_PIPE_DIRECTORY, which the containers
of the pod share. Nobody else can have a daemon there, so no lease is needed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from omni_runtime.mps.control import LOG_VARIABLE, PIPE_VARIABLE, PROGRAM, MpsControl
from omni_runtime.mps.errors import MpsControlFailed, MpsError, MpsProgramMissing
from omni_runtime.process_end import process_ended

_QUIT_SECONDS = 10.0
_PRIVATE = 0o700


async def run(control: MpsControl) -> int:
    """Run the daemon until SIGTERM or until it ends by itself; return the exit status.

    Raises:
        MpsProgramMissing: there is no control program.
    """
    for folder in (control.pipe, control.log):
        folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    program = shutil.which(PROGRAM)
    if program is None:
        raise MpsProgramMissing(f"{PROGRAM} is not on PATH")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    daemon = await asyncio.to_thread(subprocess.Popen, [program, "-f"])
    ended = asyncio.create_task(process_ended(daemon.pid))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if stop.is_set():
        await _end(control, daemon, ended)
        return 0
    return daemon.wait() or 1


async def check(control: MpsControl) -> int:
    """Ask the daemon for its servers; return 0 when it answers.

    Raises:
        MpsControlFailed: it does not.
    """
    await control.servers()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one action; what goes wrong is said on standard error and returned as 1."""
    parser = argparse.ArgumentParser(prog="python -m omni_runtime.mps.sidecar", description=__doc__)
    actions = {"run": run, "check": check}
    parser.add_argument("action", choices=actions)
    action = actions[parser.parse_args(arguments).action]
    try:
        pipe, log = (Path(os.environ[name]) for name in (PIPE_VARIABLE, LOG_VARIABLE))
    except KeyError as missing:
        print(f"{missing.args[0]} must name the directory that clients share", file=sys.stderr)
        return 2
    try:
        return asyncio.run(action(MpsControl(pipe, log)))
    except MpsError as error:
        print(error, file=sys.stderr)
        return 1


async def _end(
    control: MpsControl, daemon: subprocess.Popen[bytes], ended: asyncio.Task[None]
) -> None:
    try:
        await control.quit()
        async with asyncio.timeout(_QUIT_SECONDS):
            await ended
    except (MpsControlFailed, TimeoutError) as error:
        print(f"the daemon does not quit and is killed: {error}", file=sys.stderr)
        daemon.kill()
    daemon.wait()


if __name__ == "__main__":
    sys.exit(main())
