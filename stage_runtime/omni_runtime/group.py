"""One process group: `python -m omni_runtime.group --config FILE --group NAME --listen … --gateway
…`

The process plans the pipeline it is given, builds the stages of its group, serves edges and health,
and stays registered with every gateway until it is told to stop. SIGTERM drains; a second one stops
at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from omni_config.errors import OmniError
from omni_runtime.background import in_background
from omni_runtime.group_config import GroupOptions, PlannedGroup, parse_options, read_group
from omni_runtime.group_stages import build_schedulers
from omni_runtime.liveness import keep_liveness
from omni_runtime.logging import EventLogger, configure_logging
from omni_runtime.pausing import ignore_until_registered, pause_on_signals
from omni_runtime.registration import Registration
from omni_runtime.scheduler import Scheduler
from omni_runtime.stage_host import HostIdentity, StageHost
from omni_runtime.stage_wiring import wire_stage
from omni_runtime.weight_share.share import WeightShare
from omni_wire.identity import new_incarnation
from omni_wire.messages import Hello
from omni_wire.server import WireServer
from omni_wire.stage_server import SERVICE as STAGE_SERVICE
from omni_wire.supervision import die_with_parent, notify_ready, notify_status, notify_stopping
from omni_wire.wire_version import Versions

logger = EventLogger(__name__)

LAST_WORDS_SECONDS = 2.0
"""How long what was posted at the end of draining may take to be received."""


class Stopping:
    """What SIGTERM asks for: the first one to drain, the second one to stop at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.drain_seconds: float | None = None
        self._main = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    def ask(self, drain_seconds: float) -> None:
        """Drain for at most this long, and then stop."""
        self.drain_seconds = drain_seconds
        self.asked.set()

    def _on_signal(self) -> None:
        if self.asked.is_set() and self._main is not None:
            self._main.cancel()
        self.asked.set()


class Group:
    """One process group while it runs."""

    def __init__(self, options: GroupOptions, planned: PlannedGroup, stopping: Stopping) -> None:
        self._options = options
        self._planned = planned
        self._stopping = stopping

    async def run(self, schedulers: Mapping[str, Scheduler]) -> None:
        """Serve until asked to stop, then drain.

        Raises:
            ExceptionGroup: a scheduler crashed.
            CredentialsError: the address cannot be listened on.
        """
        options = self._options
        async with asyncio.TaskGroup() as tasks:
            identity = HostIdentity(options.advertise, new_incarnation(), options.credentials)
            host = StageHost(identity, tasks)
            for instance in self._planned.instances:
                wiring = wire_stage(instance.config, instance.name)
                host.add(wiring, schedulers[instance.name], instance.config.comm)
            server = WireServer([STAGE_SERVICE], [host.server.handler()])
            server.listen(options.listen, options.credentials)
            async with server, self._metrics(host):
                registration = Registration(self._hello(host), host, self._stopping.ask)
                pause_on_signals(registration)
                watching = tasks.create_task(
                    keep_liveness(server, schedulers.values(), options.stuck_seconds)
                )
                tasks.create_task(registration.run(options.gateways))
                announcing = tasks.create_task(self._announce(registration, server))
                await self._stopping.asked.wait()
                announcing.cancel()
                await self._drain(host, registration, server)
                watching.cancel()

    @asynccontextmanager
    async def _metrics(self, host: StageHost) -> AsyncIterator[None]:
        port = self._options.metrics_port
        if port is None:
            yield
            return
        from omni_runtime.metrics import registry_of
        from omni_runtime.metrics_page import metrics_page

        async with metrics_page(registry_of(host), port):
            yield

    def _hello(self, host: StageHost) -> Hello:
        """Return what this group says of itself to gateways."""
        return Hello(
            wire_version=Versions().newest,
            config_hash=self._planned.hash,
            revision=self._options.revision,
            group=self._planned.name,
            incarnation=host.identity.incarnation,
            address=host.identity.address,
            instances=tuple(host.stages),
            labels=dict(self._options.labels),
        )

    async def _announce(self, registration: Registration, server: WireServer) -> None:
        """Say that the group is ready once its gateways know it."""
        notify_status("registering")
        await registration.wait_registered()
        await server.set_serving("", True)
        notify_ready()
        logger.info("ready", instances=",".join(self._planned.group.stage_names))

    async def _drain(self, host: StageHost, registration: Registration, server: WireServer) -> None:
        seconds = self._stopping.drain_seconds
        seconds = self._options.drain_seconds if seconds is None else seconds
        logger.info("draining", seconds=seconds)
        notify_stopping()
        await server.set_serving("", False)
        registration.start_draining()
        await host.drain(seconds, registration.unbound)
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await host.outlet.drain()
                await registration.drain()
        except TimeoutError:
            logger.info("somebody was not there for the last words")
        registration.close()
        await host.close()


async def build(
    options: GroupOptions, planned: PlannedGroup, share: WeightShare | None
) -> dict[str, Scheduler]:
    """Return the schedulers of a group, rank 0 of a tensor-parallel stage bound to the others.

    Raises:
        FactoryFailed: a stage could not be built.
        RankLost: another rank did not join.
    """
    notify_status("building stages")
    if not planned.follower_addresses:
        builds = planned.builds(options.one_card)
        return await in_background(
            "build", lambda: build_schedulers(builds, options.construction_lock, share)
        )
    # Imported by ranks alone: ZeroMQ is of no use to anybody else.
    from omni_runtime.leader import build_leader

    return await in_background("build", lambda: build_leader(options, planned))


async def run_group(options: GroupOptions, planned: PlannedGroup) -> None:
    """Build the stages of a group and serve them until asked to stop."""
    stopping = Stopping()
    role = options.weight_share
    share = None if role is None else WeightShare(role, {"configuration": planned.hash})
    building = asyncio.create_task(build(options, planned, share))
    asked = asyncio.create_task(stopping.asked.wait())
    await asyncio.wait((building, asked), return_when=asyncio.FIRST_COMPLETED)
    if not building.done():
        logger.info("stopped while building")
        return
    asked.cancel()
    await Group(options, planned, stopping).run(building.result())
    if share is not None:
        # Its followers end with it, and may still have requests to finish.
        await in_background("unshare", lambda: share.wait_unused(options.drain_seconds))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a group; returns the exit status."""
    die_with_parent()
    ignore_until_registered()
    try:
        options = parse_options(sys.argv[1:] if arguments is None else arguments, os.environ)
        configure_logging(options.group, options.log_format, options.log_level)
        planned = read_group(options)
        if planned.is_follower:
            from omni_runtime.follower import run_follower

            run_follower(options, planned)
        else:
            asyncio.run(run_group(options, planned))
    except OmniError as error:
        if error.__cause__ is None:
            print(error, file=sys.stderr)
        else:
            logger.error("the group could not start", error)
        return 1
    except ExceptionGroup as failures:
        logger.error("the group failed", failures)
        return 1
    except asyncio.CancelledError:
        logger.info("stopped at once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
