"""Runs a resolved pipeline on this machine, from the plan to the removal of its last file."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from omni_config.planning.environment import Host
from omni_config.planning.resolved_plan import plan_resolution
from omni_config.resolution.inspection import PROVENANCE_FILE, config_yaml, provenance_json
from omni_config.resolution.resolve import Resolution
from omni_runtime.launcher.display import Display
from omni_runtime.launcher.host_facts import usable_cpus, visible_devices
from omni_runtime.launcher.local_processes import Programs, Wiring, local_processes
from omni_runtime.launcher.local_run import LocalRun
from omni_runtime.launcher.roles import Patience
from omni_runtime.launcher.run_directory import run_directory
from omni_runtime.launcher.shared_cards import leased_cards

_RUN_ID_BYTES = 4


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """What a user decides about a run beside its configuration.

    Attributes:
        listen: `host:port` of the gateway's gRPC API; port 0 takes a free one.
        http: `host:port` of its HTTP API.
        pipelines: modules that hold more pipelines.
        insecure: the gateway may listen in plaintext where other machines reach it.
        api_keys: file or directory with the keys that clients need; null lets everybody in.
        metrics_port: first port of Prometheus pages, the gateway's; null for none.
    """

    listen: tuple[str, ...] = ("127.0.0.1:50050",)
    http: tuple[str, ...] = ()
    pipelines: tuple[str, ...] = ()
    insecure: bool = False
    api_keys: Path | None = None
    metrics_port: int | None = None
    patience: Patience = field(default_factory=Patience)
    programs: Programs = field(default_factory=Programs)


async def launch(resolution: Resolution, options: LaunchOptions, display: Display) -> int:
    """Run a pipeline until it is told to stop; return the exit code.

    Raises:
        PlanOnlyError: its stages cannot run yet; nothing was started.
        PlanError: no placement on this machine satisfies every rule; nothing was started.
        MpsError: a GPU cannot be shared as asked.
        UnsafeDirectory: the run directory would not be safe from other users.
    """
    resolution.config.require_runnable()
    devices = visible_devices()
    host = Host(dict(os.environ), usable_cpus())
    runtime = plan_resolution(
        resolution,
        devices=devices,
        environ=host.environ,
        run_id=secrets.token_hex(_RUN_ID_BYTES),
    )
    for warning in runtime.warnings:
        display.say("", f"warning: {warning}")
    with run_directory(Path(runtime.endpoints.run_directory)) as folder:
        config_file = folder / "config.yaml"
        config_file.write_text(config_yaml(resolution.config))
        told = json.dumps(provenance_json(resolution), default=str)
        config_file.with_name(PROVENANCE_FILE).write_text(told)
        wiring = Wiring(
            folder=folder,
            config_file=config_file,
            listen=options.listen,
            pipelines=options.pipelines,
            insecure=options.insecure,
            http=options.http,
            api_keys=options.api_keys,
            metrics_port=options.metrics_port,
            programs=options.programs,
        )
        processes = local_processes(runtime, wiring, host, devices)
        async with leased_cards(runtime, host.environ) as cards:
            return await LocalRun(processes, display, options.patience, cards).run()
