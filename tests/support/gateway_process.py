"""Starts a gateway as users do, as a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.patience import PATIENT_SECONDS

TWO_LEVEL_STREAM = Path("examples/two_level_stream/pipeline.yaml")


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A running gateway.

    Attributes:
        address: `HOST:PORT` where it serves clients and groups.
        url: of its HTTP API; empty when it has none.
    """

    process: Process
    address: str
    url: str = ""

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    @property
    def rss_bytes(self) -> int:
        """Resident memory of the process now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def signal(self) -> None:
        """Ask it to stop; a second time, to stop at once."""
        self.process.send_signal(signal.SIGTERM)

    async def stopped(self) -> int:
        """Wait for its end; returns the exit code."""
        async with asyncio.timeout(PATIENT_SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def gateway_process(
    *arguments: str, config: Path = TWO_LEVEL_STREAM, pipelines: Sequence[str] = ()
) -> AsyncIterator[GatewayProcess]:
    """Run a gateway on a free port; it is killed at the end if it still runs."""
    modules = pipelines or (".".join((*config.with_suffix("").parts[:-1], "topology")),)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "omni_gateway.main",
        f"--config={config}",
        "--listen=127.0.0.1:0",
        *(() if any(one.startswith("--api-keys") for one in arguments) else ("--no-auth",)),
        *(f"--pipelines={module}" for module in modules),
        *arguments,
        stdout=PIPE,
    )
    try:
        assert process.stdout is not None
        lines = 2 if any(one.startswith("--http=") for one in arguments) else 1
        async with asyncio.timeout(PATIENT_SECONDS):
            said = [(await process.stdout.readline()).decode().split()[-1] for _ in range(lines)]
        yield GatewayProcess(process, *said)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
