"""Runs the process groups of one container, from the plan to the last exit."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from omni_config.planning.devices import DeviceTable
from omni_config.planning.mps import STATE_ROOT_VARIABLE
from omni_config.planning.plan import PipelineRuntime, prepare_pipeline_runtime
from omni_config.resolution.document import read_document
from omni_config.resolution.resolve import Sources, file_body, pipeline_of, resolve
from omni_config.schema import PipelineConfig
from omni_models.catalog import registry
from omni_runtime.launcher.cards import Cards, NoSharedCards
from omni_runtime.launcher.host_facts import usable_cpus, visible_devices
from omni_runtime.launcher.local_run import LocalRun
from omni_runtime.launcher.roles import Patience
from omni_runtime.launcher.run_directory import run_directory
from omni_runtime.launcher.shared_cards import leased_cards
from omni_runtime.pod.attachment import pipe_directories
from omni_runtime.pod.display import LoggedDisplay
from omni_runtime.pod.health import ContainerHealth
from omni_runtime.pod.options import PodOptions
from omni_runtime.pod.probes import serving_probes
from omni_runtime.pod.processes import (
    chosen_groups,
    container_devices,
    container_mps,
    host_of_container,
    pod_processes,
)

_MPS_VARIABLES = (STATE_ROOT_VARIABLE, "TMPDIR", "USER", "LOGNAME")
"""What decides where the state of MPS daemons lies. The pod's own MPS variables, which a daemon in
another container needs, must not reach the plan of this one."""


async def run_container(options: PodOptions) -> int:
    """Run the groups of a container until it is told to stop; return the exit status.

    Raises:
        OmniError: they cannot be started as told.
    """
    config = _read_config(options)
    config.require_runnable()
    environ = {key: os.environ[key] for key in _MPS_VARIABLES if key in os.environ}
    devices = _devices(options, config)
    runtime = prepare_pipeline_runtime(
        config, devices=devices, environ=environ, run_id=options.run_id
    )
    processes = pod_processes(runtime, options, host_of_container(usable_cpus()), devices)
    with run_directory(Path(runtime.endpoints.run_directory)):
        async with _cards(options, runtime, environ) as cards:
            patience = Patience(drain=options.drain_seconds)
            run = LocalRun(processes, LoggedDisplay(sys.stdout), patience, cards)
            health = ContainerHealth(run, pipe_directories(processes))
            async with serving_probes(options.health_port, health.probes):
                code = await run.run()
                health.end()
                return code


def _read_config(options: PodOptions) -> PipelineConfig:
    body = file_body(read_document(options.config))
    pipeline = pipeline_of(body, registry(options.pipelines))
    return resolve(pipeline, Sources(body=body)).config


def _devices(options: PodOptions, config: PipelineConfig) -> DeviceTable:
    """Return the devices of the container under the numbers of the plan."""
    planned = prepare_pipeline_runtime(config, run_id=options.run_id)
    groups = chosen_groups(planned, options.groups)
    return container_devices(groups, visible_devices(), planned.placement_plan.gpus)


@asynccontextmanager
async def _cards(
    options: PodOptions, runtime: PipelineRuntime, environ: dict[str, str]
) -> AsyncIterator[Cards]:
    if not options.mps:
        yield NoSharedCards()
        return
    groups = chosen_groups(runtime, options.groups)
    own = replace(runtime, mps=container_mps(runtime.mps, groups))
    async with leased_cards(own, environ) as cards:
        yield cards
