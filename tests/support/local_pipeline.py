"""A pipeline under `omni up` as a user starts it, with a look at its processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from omni_runtime.process_end import process_ended

CHECKOUT = Path(__file__).parents[2]
OMNI = Path(sys.executable).parent / "omni"
GATEWAY = "gateway"

_LISTENS = re.compile(r"gateway: listens on ([0-9.]+:[0-9]+)")
_END_SECONDS = 60.0


class LocalPipeline:
    """A running launcher. Every line it printed is kept in `lines`."""

    def __init__(self, launcher: asyncio.subprocess.Process, base: Path) -> None:
        self._launcher, self.base = launcher, base
        self.lines: list[str] = []
        self._changed = asyncio.Condition()

    @property
    def pid(self) -> int:
        """Process id of the launcher."""
        return self._launcher.pid

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the gateway and the groups that run now, by name."""
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return {name: int(pid) for pid in listed if (name := _name(int(pid)))}

    @property
    def address(self) -> str:
        """Where clients reach the gateway; it moves when that restarts on a free port."""
        found = [found for line in self.lines if (found := _LISTENS.search(line))]
        return found[-1].group(1)

    async def saw(self, text: str, times: int = 1) -> str:
        """Wait until so many lines hold a text; return the last of them."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._count(text) >= times or self._ended)
        assert self._count(text) >= times, "\n".join(self.lines)
        return [line for line in self.lines if text in line][times - 1]

    async def kill(self, name: str) -> None:
        """Kill one process and wait until the launcher has noticed."""
        pid, ends = self.pids[name], self._count(f"{name} ended")
        os.kill(pid, signal.SIGKILL)
        await process_ended(pid)
        await self.saw(f"{name} ended", ends + 1)

    async def recovered(self, name: str) -> None:
        """Wait until a process that was killed is ready again."""
        ended = max(at for at, line in enumerate(self.lines) if f"{name} ended" in line)
        async with self._changed:
            await self._changed.wait_for(
                lambda: (
                    self._ended
                    or any(f"{name}: ready again" in line for line in self.lines[ended:])
                )
            )

    async def stop(self, sent: signal.Signals = signal.SIGINT) -> int:
        """Send a signal to the launcher and return its exit status."""
        self._launcher.send_signal(sent)
        return await self.wait()

    async def wait(self) -> int:
        """Return the exit status of the launcher."""
        async with asyncio.timeout(_END_SECONDS):
            return await self._launcher.wait()

    async def read(self) -> None:
        """Keep reading what the launcher prints."""
        assert self._launcher.stdout is not None
        async for line in self._launcher.stdout:
            async with self._changed:
                self.lines.append(line.decode().rstrip())
                self._changed.notify_all()
        async with self._changed:
            self.lines.append("(end of output)")
            self._changed.notify_all()

    @property
    def _ended(self) -> bool:
        return self.lines[-1:] == ["(end of output)"]

    def _count(self, text: str) -> int:
        return sum(text in line for line in self.lines)


@asynccontextmanager
async def local_pipeline(example: str, base: Path, *arguments: str) -> AsyncIterator[LocalPipeline]:
    """Run an example under `omni up`; it has ended afterwards, whatever happened.

    Args:
        example: folder below `examples`.
        base: where the run directory is made; short, because sockets lie in it.
    """
    launcher = await asyncio.create_subprocess_exec(
        str(OMNI),
        *("up", "-f", f"examples/{example}/pipeline.yaml"),
        *("--pipelines", f"examples.{example}.topology", "--port", "0"),
        *("--endpoints.base_path", str(base), *arguments),
        cwd=CHECKOUT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    pipeline = LocalPipeline(launcher, base)
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(pipeline.read())
        try:
            yield pipeline
        finally:
            if launcher.returncode is None:
                launcher.send_signal(signal.SIGINT)
                await pipeline.wait()
            await reading


def _name(pid: int) -> str | None:
    """Return whose process this is; null for one that has not begun yet, or has just ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        return None
    if b"--group" in words:
        return words[words.index(b"--group") + 1].decode()
    return GATEWAY if b"omni_gateway.main" in words else None
