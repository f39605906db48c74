"""Names of what the processes of one host share: sockets, and the lock of each GPU.

Planning only names them. Whoever starts the pipeline creates the run directory, binds the sockets
and removes both.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omni_config.errors import Problem
from omni_config.planning.devices import DeviceTable
from omni_config.planning.processes import ProcessPlan
from omni_config.planning.visibility import visible_device
from omni_config.schema import PipelineConfig

MAX_SOCKET_PATH_BYTES = 107
"""`sun_path` of a Unix socket, less its terminating zero byte."""

_RUN_ID_LENGTH = 8
_NOT_IN_SLUG = re.compile(r"[^a-z0-9]+")
_NOT_IN_LOCK_NAME = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the processes of a pipeline meet.

    Attributes:
        run_id: distinguishes two runs of one pipeline.
        run_directory: holds sockets and the state of this run; its last part ends in the run id.
        addresses: gRPC target of each process group, by name.
    """

    run_id: str
    run_directory: str
    addresses: Mapping[str, str]


def plan_endpoints(
    config: PipelineConfig, processes: ProcessPlan, run_id: str | None = None
) -> Endpoints:
    """Return one Unix socket per process group.

    Args:
        run_id: as the launcher drew it; null derives one from the configuration, for a preview.
    """
    chosen = run_id or _derived_run_id(config)
    base = config.endpoints.base_path.rstrip("/")
    names = [group.name for group in processes.all_groups]
    free = MAX_SOCKET_PATH_BYTES - _fixed_bytes(base, chosen, names) - 1
    slug = _slug(config.display_name)[: max(0, free)].rstrip("-")
    directory = f"{base}/{slug}-{chosen}" if slug else f"{base}/{chosen}"
    return Endpoints(chosen, directory, {name: f"unix:{directory}/{name}.sock" for name in names})


def endpoint_problems(
    config: PipelineConfig, processes: ProcessPlan, run_id: str | None = None
) -> Iterator[Problem]:
    """Refuse a base path that leaves no room for the longest socket path."""
    chosen = run_id or _derived_run_id(config)
    base = config.endpoints.base_path.rstrip("/")
    names = [group.name for group in processes.all_groups]
    length = _fixed_bytes(base, chosen, names)
    if length > MAX_SOCKET_PATH_BYTES:
        longest = max(names, key=_bytes)
        yield Problem(
            "endpoints.base_path",
            f"the socket of process '{longest}' under endpoints.base_path={base!r} needs {length} "
            f"bytes, and a socket path holds {MAX_SOCKET_PATH_BYTES}; use a shorter base_path or "
            "process name",
        )


def startup_lock_name(gpu_id: int, devices: DeviceTable, environ: Mapping[str, str]) -> str:
    """Return the name of the file lock under which stages are constructed on a GPU.

    The name comes from the physical card wherever it is known, so that a process that was given
    the card's UUID and one that was given its number take the same lock. The planner decides it
    for all; a worker, which may see renumbered devices, must not.
    """
    device = devices.uuid(gpu_id) or visible_device(gpu_id, environ)
    return f"omnipipe_gpu_{_NOT_IN_LOCK_NAME.sub('_', device)}_startup.lock"


def _derived_run_id(config: PipelineConfig) -> str:
    identity = "\0".join((config.config_cls, config.model_path, config.display_name))
    return hashlib.sha256(identity.encode()).hexdigest()[:_RUN_ID_LENGTH]


def _slug(name: str) -> str:
    return _NOT_IN_SLUG.sub("-", name.lower()).strip("-") or "pipeline"


def _fixed_bytes(base: str, run_id: str, names: list[str]) -> int:
    """Length of the longest socket path without a slug."""
    return _bytes(f"{base}/{run_id}/.sock") + max(map(_bytes, names))


def _bytes(text: str) -> int:
    return len(text.encode())
