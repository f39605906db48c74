"""A group's sessions with its gateways: who it is, how it does, what it is asked.

Every group dials every gateway it knows and keeps dialling. A gateway that comes back under another
incarnation is a new one: the requests of the old one end when its lease does. Behind a DNS name
there may be any number of gateways; they are found as they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from omni_runtime.gateway_addresses import addresses_of, is_name
from omni_runtime.logging import EventLogger
from omni_runtime.stage import Stage
from omni_runtime.stage_events import GatewayPeer
from omni_runtime.stage_host import StageHost
from omni_wire.control_link import GroupLink
from omni_wire.edge import DEFAULT_OPTIONS, Release
from omni_wire.errors import ServiceError, Unavailable
from omni_wire.identity import RequestKey
from omni_wire.messages import (
    Abort,
    Drain,
    Draining,
    Failed,
    GatewayMessage,
    Hello,
    Ready,
    Stats,
    Submit,
    Welcome,
)

logger = EventLogger(__name__)

REDIAL_SECONDS = 1.0

RESOLVE_SECONDS = 5.0
"""How soon a new gateway behind a DNS name is found."""

STATS_PER_LEASE = 3
"""How often a group speaks within one lease, so that a single lost word costs nothing."""

LONGEST_STATS_SECONDS = 5.0


class GatewaySession:
    """One link to one incarnation of a gateway, and what it asks of the stages.

    Implements `omni_wire.control_link.GroupEvents`. A `Drain` that answers this group's own
    `Draining` means that nothing of that gateway is bound here any more.

    Attributes:
        welcomed: the gateway accepted the group.
        unbound: the gateway lets no request come here any more.
    """

    def __init__(self, hello: Hello, address: str, registration: Registration) -> None:
        self._registration = registration
        self._host = registration.host
        credentials = self._host.identity.credentials
        # The lease is the gateway's to say; until then the default of an edge has to do.
        self.link = GroupLink(hello, address, credentials, self, DEFAULT_OPTIONS)
        self.lease_seconds = DEFAULT_OPTIONS.reconnect_seconds
        self.welcomed = False
        self.unbound = False

    def on_welcome(self, welcome: Welcome) -> None:
        """The gateway accepted the group; it hears what is ready, once."""
        self.lease_seconds = welcome.lease_seconds
        if self.welcomed:
            return
        self.welcomed = True
        self._host.outlet.gateways[welcome.gateway] = self.link
        logger.info("registered", gateway=welcome.gateway)
        self._post_ready()
        if self._registration.draining:
            self.link.post(Draining())
        self._registration.session_changed()

    def resume(self) -> None:
        """Tell the gateway that requests are welcome again."""
        self.unbound = False
        self._post_ready()

    def on_gateway_message(self, message: GatewayMessage, release: Release) -> None:
        """Take a message from the gateway."""
        match message:
            case Submit(instance, payload) if instance in self._host.stages:
                self._host.stages[instance].submit(payload, release)
                return
            case Submit(instance, payload):
                unknown = Unavailable(f"{instance} is not hosted here", stage=instance)
                self.link.post(Failed(payload.key, instance, unknown.info))
            case Abort(key, reason):
                self._abort(key, reason)
            case Drain(seconds) if not self._registration.draining:
                self._registration.drain_asked(seconds)
            case Drain():
                self.unbound = True
                self._registration.session_changed()
        release()

    def on_stall(self, key: RequestKey, stalled: bool) -> None:
        """A client reads too slowly, or reads again: only the stages that speak to it care."""
        for stage in self._terminals:
            stage.on_stall(GatewayPeer(self.link.gateway), key, stalled)

    def on_gateway_lost(self, gateway: str, error: ServiceError) -> None:
        """The gateway refused, or is gone beyond its lease."""
        self._registration.log_loss(gateway, error)
        self._host.outlet.drop_gateway(gateway)
        for stage in self._host.stages.values():
            stage.on_gateway_lost(gateway)

    def post_stats(self, stats: Sequence[Stats]) -> None:
        """Tell the gateway how every instance does; silence would make the group count as lost."""
        for each in stats:
            self.link.post(each)

    @property
    def _terminals(self) -> list[Stage]:
        return [stage for stage in self._host.stages.values() if stage.wiring.routes.terminal]

    def _post_ready(self) -> None:
        for instance in self._host.stages:
            self.link.post(Ready(instance, ready=not self._registration.draining))

    def _abort(self, key: RequestKey, reason: str) -> None:
        self._host.outlet.expect_acknowledgements(key)
        for stage in list(self._host.stages.values()):
            stage.abort(key, reason)


class Registration:
    """Keeps a group registered with all its gateways.

    Args:
        hello: what the group says of itself.
        drain_asked: called when a gateway wants the group to drain, with the seconds it has.

    Attributes:
        draining: no new request is taken.
        unbound: set while draining once no gateway lets a request come here any more.
    """

    def __init__(self, hello: Hello, host: StageHost, drain_asked: Callable[[float], None]) -> None:
        self.host = host
        self.drain_asked = drain_asked
        self.draining = False
        self.unbound = asyncio.Event()
        self._hello = hello
        self._last_loss = ""
        self._known: dict[str, frozenset[str]] = {}
        self._dialled: set[str] = set()
        self._sessions: dict[str, GatewaySession] = {}
        self._closed = asyncio.Event()
        self._changed = asyncio.Event()

    async def run(self, targets: Sequence[str]) -> None:
        """Dial every gateway until `close`, and tell each regularly how the group does.

        Args:
            targets: gRPC targets; a DNS name stands for every gateway behind it, also for those
                that come later.
        """
        self._known = dict.fromkeys(targets, frozenset())
        async with asyncio.TaskGroup() as tasks:
            for target in targets:
                tasks.create_task(self._find(target, tasks), name=f"gateways at {target}")
            tasks.create_task(self._speak(), name="stats")

    async def wait_registered(self) -> None:
        """Return once a gateway of every target has accepted the group."""
        while not (self._known and all(map(self._is_registered, self._known.values()))):
            self._changed.clear()
            await self._changed.wait()

    def session_changed(self) -> None:
        """A session was accepted, ended, or let its requests go."""
        self._changed.set()
        if self.draining and all(session.unbound for session in self._welcomed):
            self.unbound.set()

    def log_loss(self, gateway: str, error: Exception) -> None:
        """Log the loss of a gateway once, not at every attempt to find it again."""
        if str(error) != self._last_loss:
            logger.warning("gateway lost", gateway=gateway or "-", reason=error)
        self._last_loss = str(error)

    def start_draining(self) -> None:
        """Tell every gateway that no new request is taken."""
        self.draining = True
        for session in self._welcomed:
            session.link.post(Draining())
        self.session_changed()

    def stop_draining(self) -> None:
        """Tell every gateway that new requests are taken again."""
        self.draining = False
        self.unbound.clear()
        for session in self._welcomed:
            session.resume()

    async def drain(self) -> None:
        """Return once every gateway has received all that was posted, or is gone."""
        await asyncio.gather(*(session.link.drain() for session in self._welcomed))

    def close(self) -> None:
        """End every session and make `run` return."""
        self._closed.set()
        for session in self._sessions.values():
            session.link.close()

    @property
    def _welcomed(self) -> list[GatewaySession]:
        return [session for session in self._sessions.values() if session.welcomed]

    def _is_registered(self, addresses: frozenset[str]) -> bool:
        sessions = (self._sessions.get(address) for address in addresses)
        return any(session is not None and session.welcomed for session in sessions)

    async def _find(self, target: str, tasks: asyncio.TaskGroup) -> None:
        """Dial whatever a target stands for; one that is a name is looked at again and again."""
        while not self._closed.is_set():
            try:
                self._known[target] = await addresses_of(target)
            except OSError as error:
                self.log_loss("", error)
            for address in self._known[target] - self._dialled:
                self._dialled.add(address)
                tasks.create_task(self._keep(address), name=f"gateway {address}")
            if not is_name(target):
                return
            await self._pause(RESOLVE_SECONDS if self._known[target] else REDIAL_SECONDS)

    async def _keep(self, address: str) -> None:
        """Keep a session with the gateway at an address for as long as the address stands."""
        while not self._closed.is_set() and any(address in each for each in self._known.values()):
            session = GatewaySession(self._hello, address, self)
            self._sessions[address] = session
            await session.link.run()
            del self._sessions[address]
            self.session_changed()
            await self._pause(REDIAL_SECONDS)
        self._dialled.discard(address)

    async def _speak(self) -> None:
        while not self._closed.is_set():
            stats = self.stats()
            for session in self._welcomed:
                session.post_stats(stats)
            leases = [session.lease_seconds for session in self._welcomed]
            shortest = min(leases, default=LONGEST_STATS_SECONDS)
            await self._pause(min(shortest / STATS_PER_LEASE, LONGEST_STATS_SECONDS))

    def stats(self) -> list[Stats]:
        """Return the load of every hosted instance now."""
        now = asyncio.get_running_loop().time()
        return [
            Stats(
                instance,
                stage.queued,
                stage.in_flight,
                stage.scheduler.heartbeat.steps,
                stage.scheduler.heartbeat.stuck_seconds(now),
            )
            for instance, stage in self.host.stages.items()
        ]

    async def _pause(self, seconds: float) -> None:
        """Wait, but not longer than until `close`."""
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return
