"""The command line of a stage container, as the operator writes it."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omni_runtime.launcher.local_processes import Programs
from omni_runtime.logging import LogFormat


@dataclass(frozen=True, slots=True)
class PodOptions:
    """What a container is told.

    Attributes:
        groups: process groups of this container; the n-th listens, is dialled and serves metrics
            n ports above the first.
        listen: address of the first group, `host:port`.
        advertise: what others dial to reach the first group.
        health_port: port of the probes.
        mps: the groups share GPUs through MPS daemons that run in this container.
        passed_on: arguments that every group gets as they are.
        program: what is executed for a group; tests put a stand-in in its place.
    """

    config: Path
    groups: tuple[str, ...]
    listen: str
    advertise: str
    health_port: int
    metrics_port: int
    drain_seconds: float
    mps: bool
    pipelines: tuple[str, ...]
    run_id: str
    log_format: LogFormat
    passed_on: tuple[str, ...]
    program: tuple[str, ...] = Programs().group


def parse_options(arguments: Sequence[str]) -> PodOptions:
    """Return the options in a command line; exits with a usage message where there are none.

    What is not named here is meant for the groups.
    """
    given, rest = _parser().parse_known_args(arguments)
    return PodOptions(
        config=given.config,
        groups=tuple(given.group),
        listen=given.listen,
        advertise=given.advertise or given.listen,
        health_port=given.health_port,
        metrics_port=given.metrics_port,
        drain_seconds=given.drain_seconds,
        mps=given.mps,
        pipelines=tuple(given.pipelines),
        # Drawn anew for each start, so that what an earlier container left is never taken for ours.
        run_id=given.run_id or secrets.token_hex(4),
        log_format=given.log_format,
        passed_on=("--log-format", given.log_format, *rest),
    )


def shifted(address: str, count: int) -> str:
    """Return an address so many ports higher."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + count}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m omni_runtime.pod",
        description="Run the process groups of one container. Further options go to every group.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--config", type=Path, required=True, help="exported, resolved configuration")
    add("--group", action="append", required=True, help="a process group; may be repeated")
    add("--listen", required=True, metavar="HOST:PORT", help="address of the first group")
    add("--advertise", default="", metavar="HOST:PORT", help="what others dial, if not --listen")
    add("--health-port", type=int, required=True, help="port of the probes")
    add("--metrics-port", type=int, required=True, help="Prometheus port of the first group")
    add("--drain-seconds", type=float, default=30.0, help="time to finish requests")
    add("--mps", action="store_true", help="run MPS daemons for shared GPUs in this container")
    add("--pipelines", action="append", default=[], metavar="MODULE", help="topology module")
    add("--run-id", help="names the run directory")
    add("--log-format", choices=("text", "json"), default="text")
    return parser
