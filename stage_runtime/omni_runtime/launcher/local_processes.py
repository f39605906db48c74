"""From a plan to the processes that run it on this machine: their commands and how they depend."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from omni_config.errors import OmniError
from omni_config.planning.devices import DeviceTable
from omni_config.planning.endpoints import MAX_SOCKET_PATH_BYTES
from omni_config.planning.environment import Host
from omni_config.planning.launch import group_launch
from omni_config.planning.plan import PipelineRuntime
from omni_config.planning.processes import ProcessGroup
from omni_runtime.launcher.child_process import Command
from omni_runtime.launcher.roles import Role

CONSTRUCTION_LOCK_VARIABLE = "OMNI_CONSTRUCTION_LOCK"
"""File name of the lock that a group holds while it builds its stages on a GPU."""

GATEWAY = "gateway"
GATEWAY_MODULE = "omni_gateway.main"
GROUP_MODULE = "omni_runtime.group"

_GATEWAY_RANK, _FOLLOWER_RANK, _GROUP_RANK = range(3)


class SocketPathTooLong(OmniError):
    """The gateway's socket does not fit under endpoints.base_path."""


@dataclass(frozen=True, slots=True)
class Programs:
    """What is executed for a gateway and for a group; tests put stand-ins in their place."""

    gateway: tuple[str, ...] = (sys.executable, "-m", GATEWAY_MODULE)
    group: tuple[str, ...] = (sys.executable, "-m", GROUP_MODULE)


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """One process of the run."""

    role: Role
    command: Command

    @property
    def name(self) -> str:
        """Its name in log lines."""
        return self.role.name


@dataclass(frozen=True, slots=True)
class Wiring:
    """What every process of one run is told alike.

    Attributes:
        folder: the launcher's folder inside the run directory.
        config_file: the resolved configuration.
        listen: addresses on which clients reach the gateway, as `host:port`.
        pipelines: modules that hold more pipelines.
        insecure: the gateway may listen in plaintext where other machines reach it.
        http: addresses of its HTTP API, as `host:port`.
        api_keys: file or directory with the keys that clients need; null for none.
        metrics_port: of the gateway's Prometheus page, and of the groups' from the next one on;
            None for no pages.
    """

    folder: Path
    config_file: Path
    listen: tuple[str, ...]
    pipelines: tuple[str, ...] = ()
    insecure: bool = False
    http: tuple[str, ...] = ()
    api_keys: Path | None = None
    metrics_port: int | None = None
    programs: Programs = Programs()

    @property
    def gateway_address(self) -> str:
        """Where groups of this machine dial the gateway."""
        return f"unix:{self.folder}/gateway.sock"


def local_processes(
    runtime: PipelineRuntime, wiring: Wiring, host: Host, devices: DeviceTable
) -> list[LocalProcess]:
    """Return the processes of a run, the gateway first.

    Raises:
        PlanError: a rank's card is not visible to the launcher.
        SocketPathTooLong: the directory of the run leaves no room for the gateway's socket.
    """
    path = wiring.gateway_address.removeprefix("unix:")
    if len(path.encode()) > MAX_SOCKET_PATH_BYTES:
        raise SocketPathTooLong(
            f"the gateway's socket {path} needs {len(path.encode())} bytes and a socket path holds "
            f"{MAX_SOCKET_PATH_BYTES}; use a shorter endpoints.base_path"
        )
    groups = runtime.process_plan.all_groups
    return [
        _gateway(runtime, wiring, {group.name for group in groups}),
        *(
            _group(runtime, group, wiring, host, devices, number)
            for number, group in enumerate(groups, 1)
        ),
    ]


def _gateway(runtime: PipelineRuntime, wiring: Wiring, taken: set[str]) -> LocalProcess:
    argv = [*wiring.programs.gateway, *_shared_arguments(runtime, wiring)]
    for address in (wiring.gateway_address, *wiring.listen):
        argv += ["--listen", address]
    for address in wiring.http:
        argv += ["--http", address]
    argv += ["--no-auth"] if wiring.api_keys is None else ["--api-keys", str(wiring.api_keys)]
    if wiring.insecure:
        argv.append("--insecure")
    argv += _metrics(wiring, 0)
    # A group of the same name would make log lines ambiguous.
    name = GATEWAY if GATEWAY not in taken else f"omni-{GATEWAY}"
    return LocalProcess(Role(name, stop_rank=_GATEWAY_RANK, drains=True), Command(argv))


def _group(
    runtime: PipelineRuntime,
    group: ProcessGroup,
    wiring: Wiring,
    host: Host,
    devices: DeviceTable,
    number: int,
) -> LocalProcess:
    launch = group_launch(runtime, group, host, devices)
    environment = dict(launch.environment)
    if launch.startup_lock is not None:
        environment[CONSTRUCTION_LOCK_VARIABLE] = launch.startup_lock
    argv = [*wiring.programs.group, *_shared_arguments(runtime, wiring)]
    argv += ["--group", group.name, "--listen", launch.address]
    argv += ["--gateway", wiring.gateway_address, *_metrics(wiring, number)]
    return LocalProcess(role_of(runtime, group), Command(argv, environment))


def _shared_arguments(runtime: PipelineRuntime, wiring: Wiring) -> Iterator[str]:
    yield from ("--config", str(wiring.config_file), "--run-id", runtime.endpoints.run_id)
    for module in wiring.pipelines:
        yield from ("--pipelines", module)


def _metrics(wiring: Wiring, number: int) -> tuple[str, ...]:
    if wiring.metrics_port is None:
        return ()
    return ("--metrics-port", str(wiring.metrics_port + number))


def role_of(runtime: PipelineRuntime, group: ProcessGroup) -> Role:
    if group.tensor_parallel:
        ranks = runtime.process_plan.tp_processes[group.stage_names[0]]
        return Role(group.name, takes_down=_without(ranks, group.name), stop_rank=_GROUP_RANK)
    for share in runtime.weight_share.groups:
        if group.name == share.leader:
            return Role(group.name, takes_down=share.followers, stop_rank=_GROUP_RANK)
        if group.name in share.followers:
            return Role(group.name, starts_after=share.leader, stop_rank=_FOLLOWER_RANK)
    return Role(group.name, stop_rank=_GROUP_RANK)


def _without(names: Sequence[str], name: str) -> tuple[str, ...]:
    return tuple(each for each in names if each != name)
