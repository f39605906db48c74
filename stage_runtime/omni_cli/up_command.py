"""`omni up`: run a pipeline on this machine."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from omni_cli.application import application
from omni_cli.output import is_decorated, print_warnings
from omni_cli.settings_command import SettingsCommand
from omni_cli.sources import SourceOptions, resolve_sources, takes_sources
from omni_config.errors import OmniError
from omni_runtime.launcher.display import Display, LineDisplay
from omni_runtime.launcher.launch import LaunchOptions, launch
from omni_runtime.launcher.roles import Patience

app = application()

DEFAULT_PORT = 50050
DEFAULT_HTTP_PORT = 8000
LOOPBACK = ("127.", "localhost:", "[::1]:", "unix:")
_DEFAULTS = Patience()


@app.command(cls=SettingsCommand)
@takes_sources
def up(
    sources: SourceOptions,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Local gRPC port; 0 takes a free one.")
    ] = DEFAULT_PORT,
    http_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            show_default=str(DEFAULT_HTTP_PORT),
            help="Local HTTP port; 0 takes a free one, as --port 0 does for both.",
        ),
    ] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="gRPC addresses, instead of --port."),
    ] = None,
    http: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="HTTP addresses, instead of --http-port."),
    ] = None,
    api_keys: Annotated[
        Path | None, typer.Option(help="Keys that clients need, as `omni key` writes them.")
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Let in everybody, also from other machines.")
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow plaintext where other machines reach it.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Port of the gateway's Prometheus page; each group takes the next one.",
        ),
    ] = None,
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
    if http_port is None:
        http_port = DEFAULT_HTTP_PORT if port else 0
    options = LaunchOptions(
        listen=tuple(listen or ()) or (f"127.0.0.1:{port}",),
        http=tuple(http or ()) or (f"127.0.0.1:{http_port}",),
        api_keys=api_keys,
        pipelines=tuple(sources.pipelines or ()),
        insecure=insecure,
        metrics_port=metrics_port,
        patience=Patience(start=start_timeout, drain=drain_seconds),
    )
    _require_keys(options, no_auth)
    code = 1
    try:
        code = asyncio.run(launch(resolution, options, _display()))
    except* BrokenPipeError:
        # Whoever read the log has left; the processes were stopped.
        raise BrokenPipeError from None
    if code:
        raise typer.Exit(code)


def _require_keys(options: LaunchOptions, no_auth: bool) -> None:
    """Refuse to let in other machines unless that was asked for; this one is let in anyway."""
    exposed = [one for one in (*options.listen, *options.http) if not one.startswith(LOOPBACK)]
    if exposed and options.api_keys is None and not no_auth:
        raise OmniError(
            f"{', '.join(exposed)} can be reached from other machines: give --api-keys, or "
            "--no-auth to let everybody in"
        )


def _display() -> Display:
    if not is_decorated(sys.stdout):
        return LineDisplay(sys.stdout, colours=False)
    # Rich costs a tenth of a second, which a pipe need not pay.
    from omni_cli.live_display import LiveDisplay

    return LiveDisplay(sys.stdout)
