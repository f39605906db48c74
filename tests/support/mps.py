"""A card with a fake control daemon, and processes that attach to it when a test says so."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from omni_config.planning.mps import CLIENT_TOKEN_VARIABLE
from omni_config.settings import MpsQuota
from omni_runtime.mps.control import PIPE_VARIABLE
from omni_runtime.mps.daemon import LeaseTimes
from omni_runtime.mps.lease import MpsLease
from omni_runtime.mps.leasing import CardRequest, acquire_lease
from omni_runtime.mps.process_identity import processes_with
from omni_runtime.process_end import process_ended
from tests.support import fake_mps_control
from tests.support.patience import PATIENT_SECONDS

TIMES = LeaseTimes(answer=PATIENT_SECONDS, attach=0, leave=0, quit=PATIENT_SECONDS, look_again=0.01)
HOLDER = """
import asyncio, signal, sys
from pathlib import Path
from omni_runtime.mps.daemon import LeaseTimes
from omni_runtime.mps.leasing import CardRequest, acquire_lease
root, card, program, owner = sys.argv[1:]
request = CardRequest(Path(root), card, "GPU-1", program=program)
lease = asyncio.run(acquire_lease(request, owner, LeaseTimes()))
print("held", flush=True)
signal.pause()
"""
"""A launcher that takes a lease and does nothing else, to be killed."""


@dataclass
class Card:
    """One card of a fake host."""

    root: Path
    program: str
    name: str = "GPU-1"
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.root / self.name

    @property
    def pipe(self) -> Path:
        return self.path / "pipe"

    @property
    def owners(self) -> dict[str, str]:
        """Status by owner, as written on disk."""
        folder = self.path / "owners"
        return {each.name: each.read_text() for each in sorted(folder.iterdir())}

    @property
    def daemon_pid(self) -> int:
        return int((self.pipe / "nvidia-cuda-mps-control.pid").read_text())

    @property
    def calls(self) -> list[str]:
        """What was asked of the control program, listings left out."""
        return Path(os.environ["FAKE_MPS_CALLS"]).read_text().splitlines()

    def request(self, quota: MpsQuota | None = None) -> CardRequest:
        asked = CardRequest(self.root, self.name, self.name, program=self.program)
        return asked if quota is None else replace(asked, quota=quota)

    async def lease(self, owner: str, quota: MpsQuota | None = None) -> MpsLease:
        return await acquire_lease(self.request(quota), owner, TIMES)

    async def client(self, token: str = "") -> int:
        """Start a process with a token and attach it."""
        pid = self.bystander(token)
        await self.tell(f"fake_attach {pid}")
        return pid

    def bystander(self, token: str = "") -> int:
        """Start a process that could attach and does not."""
        variables = {PIPE_VARIABLE: str(self.pipe), CLIENT_TOKEN_VARIABLE: token}
        process = subprocess.Popen(["sleep", "1000"], env={**os.environ, **variables})
        self.started.append(process)
        return process.pid

    async def end(self, pid: int) -> None:
        """End a process that `client` started."""
        process = next(each for each in self.started if each.pid == pid)
        process.kill()
        process.wait()

    async def tell(self, command: str) -> None:
        """Give the fake daemon a command of its own."""
        await asyncio.to_thread(fake_mps_control.ask, self.pipe, command)

    async def dead_owner(self, owner: str) -> None:
        """Let a launcher take a lease and kill it."""
        holder = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", HOLDER, str(self.root), self.name, self.program, owner),
            stdout=asyncio.subprocess.PIPE,
        )
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"held\n"
        holder.send_signal(signal.SIGKILL)
        await holder.wait()

    async def kill_daemon(self) -> None:
        pid = self.daemon_pid
        os.kill(pid, signal.SIGKILL)
        await process_ended(pid)


@contextmanager
def fake_host(folder: Path) -> Iterator[Card]:
    """Yield a card; nothing that was started for it survives.

    Args:
        folder: short enough for the path of a socket some levels below it.
    """
    wrapper = folder / "bin" / "nvidia-cuda-mps-control"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {fake_mps_control.__file__} "$@"\n')
    wrapper.chmod(0o755)
    card = Card(folder / "mps", str(wrapper))
    try:
        yield card
    finally:
        for process in card.started:
            process.kill()
            process.wait()
        for name in ("GPU-1", "GPU-2"):
            for pid in processes_with(PIPE_VARIABLE, str(folder / "mps" / name / "pipe")):
                os.kill(pid, signal.SIGKILL)
