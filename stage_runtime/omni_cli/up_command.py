"""`omni up`: run a pipeline on this machine."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from omni_cli.application import application
from omni_cli.output import is_decorated, print_warnings
from omni_cli.settings_command import SettingsCommand
from omni_cli.sources import SourceOptions, resolve_sources, takes_sources
from omni_runtime.launcher.display import Display, LineDisplay
from omni_runtime.launcher.launch import LaunchOptions, launch
from omni_runtime.launcher.roles import Patience

app = application()

DEFAULT_PORT = 8000
_DEFAULTS = Patience()


@app.command(cls=SettingsCommand)
@takes_sources
def up(
    sources: SourceOptions,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Local port of the gateway; 0 takes a free one.")
    ] = DEFAULT_PORT,
    listen: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Addresses of the gateway, instead of --port."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow plaintext where other machines reach it.")
    ] = False,
    drain_seconds: Annotated[
        float, typer.Option(min=0, help="How long a stop waits for requests in flight.")
    ] = _DEFAULTS.drain,
    start_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds a process may start without any progress.")
    ] = _DEFAULTS.start,
) -> None:
    """Run a pipeline on this machine: a gateway and a process per group.

    Ctrl-C stops it. Any setting may follow as `--<stage>.<path> VALUE`.
    """
    resolution = resolve_sources(sources).resolution
    print_warnings(resolution.warnings)
    options = LaunchOptions(
        listen=tuple(listen or ()) or (f"127.0.0.1:{port}",),
        pipelines=tuple(sources.pipelines or ()),
        insecure=insecure,
        patience=Patience(start=start_timeout, drain=drain_seconds),
    )
    code = 1
    try:
        code = asyncio.run(launch(resolution, options, _display()))
    except* BrokenPipeError:
        # Whoever read the log has left; the processes were stopped.
        raise BrokenPipeError from None
    if code:
        raise typer.Exit(code)


def _display() -> Display:
    if not is_decorated(sys.stdout):
        return LineDisplay(sys.stdout, colours=False)
    # Rich costs a tenth of a second, which a pipe need not pay.
    from omni_cli.live_display import LiveDisplay

    return LiveDisplay(sys.stdout)
