"""`python -m omni_operator`: one operator process.

It ends with status 0 after SIGTERM or SIGINT, and with 1 when it must start over: its Lease was
lost, or the API server was not there.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

from omni_config.errors import OmniError
from omni_operator.controller.lease import LeaseOptions
from omni_operator.controller.logs import EventLogger, configure_logging
from omni_operator.controller.operator import Operator
from omni_operator.controller.options import Options
from omni_operator.render.view import Release

logger = EventLogger(__name__)

FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until told to stop."""
    given = _parser().parse_args(arguments)
    configure_logging(given.log_format, given.log_level)
    try:
        asyncio.run(_run(_options_of(given)))
    except OmniError as error:
        logger.warning("operator ends", error=error)
        return FAILED
    except asyncio.CancelledError:
        return 0
    return 0


async def _run(options: Options) -> None:
    """Run an operator until a signal comes.

    Raises:
        OmniError: it must start over.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def take_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)

    take_signals()
    await Operator(options, on_spawned=take_signals).run()


def read_options(arguments: Sequence[str]) -> Options:
    """Return what a command line tells an operator.

    Raises:
        SystemExit: it is wrong; the reason was printed.
    """
    return _options_of(_parser().parse_args(arguments))


def _options_of(given: argparse.Namespace) -> Options:
    return Options(
        release=Release(stage_image=given.stage_image, gateway_image=given.gateway_image),
        lease=LeaseOptions(given.lease_namespace, given.lease_name),
        namespaces=tuple(given.namespace),
        kubeconfig=given.kubeconfig,
        service_account=given.service_account,
        workers=given.workers,
        resync_seconds=given.resync_seconds,
        health_port=given.health_port,
        metrics_port=given.metrics_port,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="omni_operator", description="Runs OmniPipelines.")
    option = parser.add_argument
    option("--namespace", action="append", default=[], help="look after this namespace only")
    option("--kubeconfig", type=Path, help="credentials; the pod's service account when absent")
    option("--stage-image", required=True, help="image of stages where an object names none")
    option("--gateway-image", required=True, help="image of gateways where an object names none")
    option("--lease-namespace", required=True, help="namespace of the Lease and of own Secrets")
    option("--lease-name", default="omnipipe-operator", help="name of the Lease")
    option("--service-account", default="", help="account that the Lease and own Secrets go with")
    option("--workers", type=int, default=8, help="pipelines looked at in parallel")
    option("--resync-seconds", type=float, default=600.0, help="look at each at least this often")
    option("--health-port", type=int, default=8080, help="/livez and /readyz")
    option("--metrics-port", type=int, default=9090, help="/metrics")
    option("--log-format", choices=("text", "json"), default="json")
    option("--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"), default="INFO")
    return parser
