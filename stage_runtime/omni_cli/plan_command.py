"""`omni plan`: what will run where and why, before anything runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from omni_cli.application import application
from omni_cli.output import Format, print_data, print_lines, print_warnings, speaks_unicode
from omni_cli.plan_lines import plan_lines
from omni_cli.settings_command import SettingsCommand
from omni_cli.sources import SourceOptions, resolve_sources, takes_sources
from omni_config.errors import ConfigError, Problem
from omni_config.planning.devices import NO_DEVICES, Device, DeviceTable
from omni_config.planning.instances import expand_replicas
from omni_config.planning.resolved_plan import plan_resolution
from omni_config.schema import PipelineConfig
from omni_config.units import parse_bytes

app = application()


@app.command(cls=SettingsCommand)
@takes_sources
def plan(
    sources: SourceOptions,
    devices: Annotated[
        int | None,
        typer.Option(min=0, help="GPUs of the machine it is for; checks the GPU ids."),
    ] = None,
    gpu_memory: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help="Memory of each GPU, such as 80GiB; checks budgets."),
    ] = None,
    output: Annotated[
        Format, typer.Option("--output", "-o", help="How to print it.")
    ] = Format.TEXT,
) -> None:
    """Show what will run where, and why; or everything that is wrong with it.

    Planning starts nothing and needs no GPU. Any setting may follow as `--<stage>.<path> VALUE`.
    """
    resolved = resolve_sources(sources)
    config = resolved.resolution.config
    table = _device_table(config, devices, gpu_memory)
    runtime = plan_resolution(resolved.resolution, devices=table)
    print_warnings(dict.fromkeys((*resolved.resolution.warnings, *runtime.warnings)))
    if output is Format.TEXT:
        print_lines(plan_lines(runtime, unicode=speaks_unicode(sys.stdout)))
    else:
        print_data(runtime.to_json(), output)


def _device_table(config: PipelineConfig, count: int | None, gpu_memory: str | None) -> DeviceTable:
    """Return the GPUs a user describes: as many as named, or those the pipeline asks for."""
    if gpu_memory is None:
        return NO_DEVICES if count is None else DeviceTable(visible_count=count)
    try:
        memory = parse_bytes(int(gpu_memory) if gpu_memory.isdigit() else gpu_memory)
    except ValueError as error:
        message = f"--gpu-memory {error}, got {gpu_memory!r}"
        raise ConfigError([Problem("", message)]) from None
    placed = {gpu for instance in expand_replicas(config).instances for gpu in instance.gpu_ids}
    ids = placed if count is None else placed | set(range(count))
    # Two ids are two cards here; a name of the id's own says so.
    known = {gpu_id: Device(f"gpu{gpu_id}", memory_bytes=memory) for gpu_id in sorted(ids)}
    return DeviceTable(devices=known, visible_count=count)
