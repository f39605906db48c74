"""`python -m omni_gateway.main`: one gateway process.

It reads a resolved configuration, serves until SIGTERM, drains, and ends. A second SIGTERM ends it
at once.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from omni_config.errors import OmniError
from omni_config.schema import PipelineConfig
from omni_gateway.clients import LOOPBACK, Clients, add_client_flags, clients_of
from omni_gateway.coordinator import CoordinatorOptions, Readiness
from omni_gateway.interceptors import GRPC_LOGGER, DepartureFilter
from omni_gateway.loading import load_config, load_provenance
from omni_gateway.server import Addresses, GatewayServer, coordinator_options
from omni_runtime.logging import EventLogger, configure_logging
from omni_wire.credentials import Credentials, MutualTls, Plaintext
from omni_wire.supervision import (
    die_with_parent,
    notify_address,
    notify_ready,
    notify_status,
    notify_stopping,
)

logger = EventLogger(__name__)

USAGE_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop; returns 0 after a clean stop, 2 when it could not start."""
    die_with_parent()
    given = _parser().parse_args(arguments)
    configure_logging("gateway", given.log_format, given.log_level)
    GRPC_LOGGER.addFilter(DepartureFilter())
    try:
        credentials = _credentials(given)
        config = load_config(given.config, given.pipelines)
        clients = clients_of(given, credentials)
        return asyncio.run(_serve(given, config, credentials, clients))
    except OmniError as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR


async def _serve(
    given: argparse.Namespace, config: PipelineConfig, credentials: Credentials, clients: Clients
) -> int:
    server = GatewayServer(
        config,
        Addresses(
            tuple(given.listen),
            tuple(given.control),
            given.metrics_port,
            given.health_port,
            tuple(given.http),
        ),
        credentials,
        _options(given, config),
        clients=clients,
        provenance=load_provenance(given.config),
        routes=given.routes,
        drain_seconds=given.drain_seconds,
    )
    stops = _stop_signals()
    async with server.serving():
        for address in (*server.bound, *server.pages):
            notify_address(address)
        print(f"gateway {server.coordinator.gateway} on {', '.join(server.bound)}", flush=True)
        if server.pages:
            print(f"gateway {server.coordinator.gateway} at {', '.join(server.pages)}", flush=True)
        async with asyncio.TaskGroup() as tasks:
            announcing = tasks.create_task(_announce_ready(server))
            await stops.get()
            announcing.cancel()
        await _drain(server, stops)
    return 0


async def _announce_ready(server: GatewayServer) -> None:
    server.coordinator.watch_readiness(_tell_progress)
    await server.ready()
    notify_ready()
    logger.info("ready")


def _tell_progress(readiness: Readiness) -> None:
    """Tell the launcher what the pipeline waits for."""
    waiting = "waiting for stages" if readiness.reasons else "; ".join(readiness.lines())
    notify_status(waiting)


async def _drain(server: GatewayServer, stops: asyncio.Queue[None]) -> None:
    """Drain until nothing is in flight, the time is over, or another signal comes."""
    notify_stopping()
    logger.info("draining", in_flight=server.coordinator.state.requests.admission.in_flight)
    draining = asyncio.ensure_future(server.drain())
    impatient = asyncio.ensure_future(stops.get())
    await asyncio.wait((draining, impatient), return_when=asyncio.FIRST_COMPLETED)
    for task in (draining, impatient):
        task.cancel()
    await asyncio.wait((draining, impatient))
    logger.info("stopped")


def _stop_signals() -> asyncio.Queue[None]:
    stops: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stops.put_nowait, None)
    return stops


def _options(given: argparse.Namespace, config: PipelineConfig) -> CoordinatorOptions:
    options = coordinator_options(config)
    named = {
        "max_in_flight": given.max_in_flight,
        "lease_seconds": given.lease_seconds,
        "route_wait_seconds": given.route_wait_seconds,
        "max_resubmits": given.max_resubmits,
    }
    return replace(options, **{key: value for key, value in named.items() if value is not None})


def _credentials(given: argparse.Namespace) -> Credentials:
    files = (given.tls_certificate, given.tls_key, given.tls_ca)
    if all(files):
        return MutualTls(*files, server_name=given.tls_server_name)
    if any(files):
        raise OmniError("--tls-certificate, --tls-key and --tls-ca belong together")
    own = given.client_tls_certificate or given.plaintext_clients
    listened = given.control if given.control and own else [*given.listen, *given.control]
    exposed = [one for one in listened if not one.startswith(LOOPBACK)]
    if exposed and not given.insecure:
        raise OmniError(
            f"{', '.join(exposed)} can be reached from other machines: give certificates "
            "(--tls-certificate, --tls-key, --tls-ca), or --insecure when the network is trusted"
        )
    return Plaintext()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m omni_gateway.main", description=__doc__)
    add = parser.add_argument
    add("--config", type=Path, required=True, metavar="FILE", help="resolved configuration")
    add(
        "--pipelines",
        action="append",
        default=[],
        metavar="MODULE",
        help="topology module to load pipelines from; may be repeated",
    )
    add(
        "--listen",
        action="append",
        required=True,
        metavar="ADDRESS",
        help="HOST:PORT or unix:PATH for clients, and for groups without --control; repeatable",
    )
    add(
        "--control",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="address for groups alone; may be repeated",
    )
    add("--health-port", type=int, metavar="N", help="port of /livez, /readyz, /startupz, /drain")
    add("--metrics-port", type=int, metavar="N", help="port of the Prometheus endpoint")
    add("--routes", type=Path, metavar="FILE", help="revisions of groups, kept by an operator")
    add("--run-id", default="", metavar="ID", help="name of the run, for logs")
    _add_limits(parser)
    _add_security(parser)
    add_client_flags(parser)
    add("--log-format", choices=("text", "json"), default="text")
    add("--log-level", default="INFO")
    return parser


def _add_limits(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--max-in-flight", type=int, metavar="N", help="most unfinished requests")
    add("--lease-seconds", type=float, help="silence after which a group counts as lost")
    add("--route-wait-seconds", type=float, help="how long a request waits for a replica")
    add("--max-resubmits", type=int, metavar="N", help="restarts of a request that lost a replica")
    add("--drain-seconds", type=float, default=30.0, help="time for requests in flight at the end")


def _add_security(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--tls-certificate", type=Path, metavar="PEM", help="certificate of this gateway")
    add("--tls-key", type=Path, metavar="PEM", help="its private key")
    add("--tls-ca", type=Path, metavar="PEM", help="authority that signs every peer")
    add("--tls-server-name", default="", metavar="NAME", help="name in peers' certificates")
    add("--insecure", action="store_true", help="plaintext also where others can reach it")


if __name__ == "__main__":
    sys.exit(main())
