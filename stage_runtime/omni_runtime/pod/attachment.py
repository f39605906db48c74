"""Which processes of a container are attached to their MPS daemon.

The daemon may run in this container or in another one of the pod; either way the pipe directory of
a process leads to it, and the containers of such a pod see each other's process ids.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from omni_runtime.launcher.local_processes import LocalProcess
from omni_runtime.mps.control import PIPE_VARIABLE, MpsControl


def pipe_directories(processes: Iterable[LocalProcess]) -> Mapping[str, Path]:
    """Return the pipe directory of each process that has one, by the process's name."""
    inherited = os.environ.get(PIPE_VARIABLE)
    found: dict[str, Path] = {}
    for process in processes:
        directory = process.command.environment.get(PIPE_VARIABLE, inherited)
        if directory:
            found[process.name] = Path(directory)
    return found


async def attached(pipes: Mapping[str, Path], pids: Mapping[str, int]) -> frozenset[str]:
    """Return the names of the processes that are attached.

    Args:
        pipes: pipe directory by name.
        pids: process id by name.

    Raises:
        MpsControlFailed: a daemon does not answer.
        MpsProgramMissing: there is no control program.
    """
    clients: dict[Path, set[int]] = {}
    for pipe in set(pipes.values()):
        found = await MpsControl(pipe, pipe).clients()
        clients[pipe] = {client.client_pid for client in found}
    return frozenset(name for name, pipe in pipes.items() if pids.get(name) in clients[pipe])
