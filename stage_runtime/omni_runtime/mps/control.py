"""Speaks to one control daemon through `nvidia-cuda-mps-control`; every answer has a deadline."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omni_config.settings import MpsQuota
from omni_runtime.mps.errors import MpsControlFailed, MpsProgramMissing

PROGRAM = "nvidia-cuda-mps-control"
PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
LOG_VARIABLE = "CUDA_MPS_LOG_DIRECTORY"
VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"

_PID_FILE = "nvidia-cuda-mps-control.pid"
_CLIENT_VARIABLES = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
_CONTROL_SOCKET = "control"


@dataclass(frozen=True, slots=True)
class ClientRef:
    """A process that is attached to an MPS server."""

    server_pid: int
    client_pid: int


class MpsControl:
    """One control daemon, running or not.

    Args:
        program: the control program.
        answer_seconds: how long any command may take.
    """

    def __init__(
        self, pipe: Path, log: Path, *, program: str = PROGRAM, answer_seconds: float = 5.0
    ) -> None:
        self.pipe, self.log = pipe, log
        self._program, self._answer_seconds = program, answer_seconds

    async def start(self, device: str) -> None:
        """Start the daemon for one device, in the background.

        Raises:
            MpsProgramMissing: nothing was executed.
            MpsControlFailed: the program failed; whether a daemon runs is unknown.
        """
        await self._run(["-d"], "", {VISIBLE_VARIABLE: device, LOG_VARIABLE: str(self.log)})

    def native_pid(self) -> int | None:
        """Return the process id that the daemon wrote down, null when there is none."""
        try:
            return int((self.pipe / _PID_FILE).read_text())
        except (FileNotFoundError, ValueError):
            return None

    @property
    def has_socket(self) -> bool:
        """Whether there is anything to speak to."""
        return (self.pipe / _CONTROL_SOCKET).exists()

    async def servers(self) -> tuple[int, ...]:
        """Return the MPS servers of the daemon: one per user with clients.

        Raises:
            MpsControlFailed: no answer.
        """
        return _pids(await self._command("get_server_list"))

    async def clients(self) -> tuple[ClientRef, ...]:
        """Return every attached process.

        Raises:
            MpsControlFailed: no answer.
        """
        found: list[ClientRef] = []
        for server in await self.servers():
            listed = await self._command(f"get_client_list {server}")
            found += [ClientRef(server, pid) for pid in _pids(listed)]
        return tuple(found)

    async def terminate_client(self, client: ClientRef) -> None:
        """Detach a client; its work on the card is thrown away.

        Raises:
            MpsControlFailed: no answer.
        """
        await self._command(f"terminate_client {client.server_pid} {client.client_pid}")

    async def set_quota(self, quota: MpsQuota) -> None:
        """Limit clients that attach from now on.

        Raises:
            MpsControlFailed: no answer, or the daemon did not take the limit.
        """
        percentage, memory = quota.active_thread_percentage, quota.pinned_memory
        if percentage is not None:
            await self._command(f"set_default_active_thread_percentage {percentage:g}")
        if memory is not None:
            # The daemon sees one device, so its number is always 0.
            await self._command(f"set_default_device_pinned_mem_limit 0 {memory >> 20}M")
        if not await self.has_quota(quota):
            raise MpsControlFailed(f"the daemon did not take the quota {quota}")

    async def has_quota(self, quota: MpsQuota) -> bool:
        """Return whether the daemon limits its clients so; only the share of threads can be read.

        Raises:
            MpsControlFailed: no answer.
        """
        if quota.active_thread_percentage is None:
            return True
        answer = await self._command("get_default_active_thread_percentage")
        try:
            return abs(float(answer.split()[-1]) - quota.active_thread_percentage) < 0.05
        except (IndexError, ValueError):
            raise MpsControlFailed(f"no share of threads in the answer {answer!r}") from None

    async def quit(self) -> None:
        """Ask the daemon to end; it takes no new clients from then on.

        Raises:
            MpsControlFailed: no answer.
        """
        await self._command("quit")

    async def _command(self, text: str) -> str:
        if not self.has_socket:
            # Without a daemon some versions of the program wait for one.
            raise MpsControlFailed(f"{text}: no control socket in {self.pipe}")
        return await self._run([], f"{text}\n", {})

    async def _run(self, arguments: Sequence[str], stdin: str, extra: Mapping[str, str]) -> str:
        # Bounded by the deadline, so a thread that outlives a cancelled caller ends soon.
        return await asyncio.to_thread(self._execute, [self._program, *arguments], stdin, extra)

    def _execute(self, argv: Sequence[str], stdin: str, extra: Mapping[str, str]) -> str:
        inherited = {key: each for key, each in os.environ.items() if key not in _CLIENT_VARIABLES}
        shown = stdin.strip() or " ".join(argv)
        # A file, because a daemon that kept a pipe open would never let it end.
        with tempfile.TemporaryFile() as output:
            try:
                done = subprocess.run(
                    argv,
                    input=stdin.encode(),
                    stdout=output,
                    stderr=output,
                    env={**inherited, PIPE_VARIABLE: str(self.pipe), **extra},
                    timeout=self._answer_seconds,
                    check=False,
                    start_new_session=True,
                )
            except OSError as error:
                raise MpsProgramMissing(f"failed to execute {self._program}: {error}") from error
            except subprocess.TimeoutExpired:
                message = f"{shown}: no answer within {self._answer_seconds:g} s"
                raise MpsControlFailed(message) from None
            output.seek(0)
            said = output.read().decode(errors="replace")
        if done.returncode != 0:
            raise MpsControlFailed(f"{shown}: exit code {done.returncode}: {said.strip()}")
        return said


def _pids(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split() if word.isdigit())
