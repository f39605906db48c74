"""Stands in for a gateway or a group under the launcher: as many faults as one likes, no work.

    python -m tests.support.stand_in_process FOLDER NAME
    python -m tests.support.stand_in_process FOLDER (the arguments of a gateway or a group)

What it does is read from FOLDER/NAME when it starts: words among `fails` (writes two lines, ends
with 3), `silent` (never ready), `stubborn` (ignores SIGTERM), `parent` (has a child of its own),
`attaches` (to the fake MPS daemon of its card), `freezes` (says once that it is alive).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from omni_runtime.pausing import PAUSE, RESUME
from omni_wire.supervision import (
    die_with_parent,
    notify_address,
    notify_alive,
    notify_ready,
    notify_status,
    notify_stopping,
)
from tests.support import fake_mps_control


def main() -> int:
    die_with_parent()
    folder, name = Path(sys.argv[1]), own_name(sys.argv[2:])
    words = (folder / name).read_text().split() if (folder / name).exists() else []
    print(f"{name} begins as {os.getpid()}", flush=True)
    if "fails" in words:
        print("loading", flush=True)
        print("cannot find the weights", file=sys.stderr, flush=True)
        return 3
    awaited = [signal.SIGTERM, PAUSE, RESUME]
    # Blocked here, so that a signal that comes before `sigwait` is not lost. Only this thread is
    # told so: one that some library started on import would take the signal, and all would end.
    assert os.listdir("/proc/self/task") == [str(os.getpid())], "an import started a thread"
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    if "parent" in words:
        child = subprocess.Popen(["sleep", "1000"])
        print(f"{name} has child {child.pid}", flush=True)
    notify_status("warming up")
    if "attaches" in words:
        fake_mps_control.ask(
            Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"]), f"fake_attach {os.getpid()}"
        )
    if "silent" not in words:
        notify_address(f"{name}:1")
        notify_ready()
    if "freezes" in words:
        notify_alive()
    while True:
        came = signal.sigwait(awaited)
        if came != signal.SIGTERM:
            print(f"{name} was told to {'pause' if came == PAUSE else 'resume'}", flush=True)
            continue
        print(f"{name} was told to stop", flush=True)
        notify_stopping()
        if "stubborn" not in words:
            return 0


def own_name(arguments: list[str]) -> str:
    if "--group" in arguments:
        return arguments[arguments.index("--group") + 1]
    return "gateway" if "--listen" in arguments else arguments[0]


if __name__ == "__main__":
    sys.exit(main())
