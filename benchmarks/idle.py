"""What a light process group and a gateway cost: to start, in memory, and while nothing happens.

Real processes as a launcher starts them: the echo example's two groups and a gateway. CPU time and
context switches come from /proc, so that what else runs on the machine does not count.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.report import Bar, main

CONFIG = "examples/echo/pipeline.yaml"
TOPOLOGY = "examples.echo.topology"
GROUPS = ("front", "back")
WINDOW_SECONDS = 10.0
START_SECONDS = 60.0

MEGABYTE = 1 << 20
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Started:
    """A process and what its start cost.

    Attributes:
        ready_seconds: from its start until it said READY.
        cpu_seconds: CPU time it had used by then.
    """

    process: subprocess.Popen[bytes]
    ready_seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Use:
    """What a process has used so far: CPU seconds and voluntary context switches."""

    cpu_seconds: float
    wake_ups: int


def use_of(pid: int) -> Use:
    """Return what a process has used, all its threads together."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    wake_ups = sum(
        int(line.split()[1])
        for status in Path(f"/proc/{pid}/task").glob("*/status")
        for line in status.read_text().splitlines()
        if line.startswith("voluntary_ctxt_switches")
    )
    return Use((int(ticks[11]) + int(ticks[12])) / TICKS_PER_SECOND, wake_ups)


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure() -> Iterable[Bar]:
    """Start a pipeline, watch it do nothing, and stop it."""
    with TemporaryDirectory(prefix="omni") as directory, pipeline(directory) as (gateway, groups):
        pids = [started.process.pid for started in groups]
        before = [use_of(pid) for pid in pids]
        time.sleep(WINDOW_SECONDS)
        after = [use_of(pid) for pid in pids]
        yield from _start_bars(groups)
        sizes = [rss_bytes(pid) / MEGABYTE for pid in pids]
        yield _bar("memory of a light group, MiB", sizes, 80, "resident memory, idle")
        size = rss_bytes(gateway.pid) / MEGABYTE
        yield _bar("memory of a gateway, MiB", [size], 120, "resident memory, gRPC and HTTP, idle")
        shares = [
            100 * (late.cpu_seconds - early.cpu_seconds) / WINDOW_SECONDS
            for early, late in zip(before, after, strict=True)
        ]
        how = f"CPU time of a registered group without requests over {WINDOW_SECONDS:g} s"
        yield _bar("idle CPU of a light group, % of a core", shares, 1, how)
        wake_ups = [
            (late.wake_ups - early.wake_ups) / WINDOW_SECONDS
            for early, late in zip(before, after, strict=True)
        ]
        yield _bar(
            "wake-ups of an idle light group per second",
            wake_ups,
            50,
            f"voluntary context switches of all threads over {WINDOW_SECONDS:g} s",
        )


@contextmanager
def pipeline(directory: str) -> Iterator[tuple[subprocess.Popen[bytes], list[Started]]]:
    """Run a gateway and the groups of the echo example; yields it and the groups, all ready."""
    gateway = f"unix:{directory}/gateway.sock"
    common = [f"--config={CONFIG}", f"--pipelines={TOPOLOGY}", "--log-level=WARNING"]
    serving = [f"--listen={gateway}", "--http=127.0.0.1:0", "--no-auth"]
    # An installed package is compiled; a work tree may not be yet.
    subprocess.run(
        [sys.executable, "-c", "import omni_runtime.group"], env=_environment(), check=True
    )
    processes = [_spawn("omni_gateway.main", *common, *serving)]
    groups: list[Started] = []
    try:
        _wait_for(Path(directory, "gateway.sock"))
        for name in GROUPS:
            listen = f"--listen=unix:{directory}/{name}.sock"
            groups.append(_started(f"--group={name}", listen, f"--gateway={gateway}", *common))
            processes.append(groups[-1].process)
        yield processes[0], groups
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _start_bars(groups: list[Started]) -> Iterator[Bar]:
    wall = [started.ready_seconds for started in groups]
    yield _bar("start of a light group, s", wall, 2, "process start until READY, one after another")
    cpu = [started.cpu_seconds for started in groups]
    yield _bar("start of a light group, CPU s", cpu, 2, "CPU time until READY")


def _bar(name: str, values: list[float], limit: float, method: str) -> Bar:
    worst = max(values)
    return Bar(name, worst, (min(values), worst), f"<= {limit:g}", worst <= limit, method)


def _started(*arguments: str) -> Started:
    told, tell = os.pipe()
    began = time.perf_counter()
    process = _spawn("omni_runtime.group", *arguments, keep=tell)
    os.close(tell)
    with os.fdopen(told) as lines:
        for line in lines:
            if line.startswith("READY"):
                seconds = time.perf_counter() - began
                return Started(process, seconds, use_of(process.pid).cpu_seconds)
    raise RuntimeError(f"the group ended with {process.wait()} before it was ready")


def _spawn(module: str, *arguments: str, keep: int | None = None) -> subprocess.Popen[bytes]:
    notify = {} if keep is None else {"OMNI_NOTIFY_FD": str(keep)}
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env=_environment() | notify,
        pass_fds=() if keep is None else (keep,),
        stdout=subprocess.DEVNULL,
    )


def _environment() -> dict[str, str]:
    """The environment, in which Python keeps what it compiles."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _wait_for(socket: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not socket.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{socket} never appeared")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(measure))
