"""Which replicas of each process group are there, and in what state: pure bookkeeping, no I/O.

Replicas register themselves and are known by their incarnation, never by name: pods of one
Deployment share all their names. A replica is lost when it says goodbye, when a newer process
answers at its address, or when nothing was heard from it for a lease. A dropped connection alone
loses nothing; such a replica is merely bound last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from omni_gateway.coordinator.routes import Routes
from omni_gateway.coordinator.topology import PipelineTopology
from omni_wire.errors import ConfigMismatch, StaleIncarnation
from omni_wire.identity import Endpoint, stage_of

REPLACED_MEMORY = 4096
"""Replaced incarnations that are remembered; the oldest is forgotten first."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What a group process says about itself.

    Attributes:
        group: process group, `talker` or `talker@r1`.
        incarnation: drawn by the process when it started.
        address: gRPC target under which other groups reach it.
        instances: its stage instances, `thinker` or `thinker@r1`.
        revision: revision of the pipeline it was started for; may be empty.
    """

    group: str
    incarnation: int
    address: str
    instances: tuple[str, ...]
    revision: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaStats:
    """Load that an instance reported of itself, requests of all gateways together.

    Attributes:
        queued: requests that wait for their first step.
        in_flight: requests held, waiting ones included.
        heartbeat: count of scheduler steps and idle ticks; one that stands still means a stuck
            stage.
        heartbeat_age_seconds: since it last rose.
    """

    queued: int
    in_flight: int
    heartbeat: int
    heartbeat_age_seconds: float


@dataclass(slots=True)
class Replica:
    """One registered group process.

    Attributes:
        heard: when anything arrived from it last, in the Coordinator's clock.
        not_ready: instances that are not ready, each with the reason.
        serves: revisions whose requests it may take.
        cold: warm-ups that it has no part in answering yet.
        outstanding: unfinished requests of this Coordinator that need it.
        let_go: while draining, it was told that it has no outstanding requests any more.
        last_bound: turn in which it was chosen last; makes equal loads take turns.
        order: turn in which it registered.
        stats: latest report of each instance.
    """

    registration: Registration
    heard: float
    order: int
    not_ready: dict[str, str]
    serves: frozenset[str]
    cold: set[str] = field(default_factory=set)
    connected: bool = True
    draining: bool = False
    let_go: bool = False
    outstanding: int = 0
    last_bound: int = -1
    stats: dict[str, ReplicaStats] = field(default_factory=dict)

    @property
    def incarnation(self) -> int:
        """Identity of the process."""
        return self.registration.incarnation

    @property
    def routable(self) -> bool:
        """Whether new requests may be bound to it."""
        return not self.draining and not self.not_ready

    def endpoints(self) -> Iterator[tuple[str, Endpoint]]:
        """Yield each logical stage with the endpoint that serves it here."""
        for instance in self.registration.instances:
            endpoint = Endpoint(instance, self.registration.address, self.incarnation)
            yield stage_of(instance), endpoint


@dataclass(slots=True)
class Directory:
    """The replicas of one pipeline.

    Attributes:
        lease_seconds: silence after which a replica counts as lost.
        routes: the revisions that replicas make together.
    """

    topology: PipelineTopology
    lease_seconds: float
    routes: Routes = field(default_factory=Routes)
    _replicas: dict[int, Replica] = field(default_factory=dict)
    _replaced: dict[int, None] = field(default_factory=dict)
    _turn: int = 0

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas.values())

    def __len__(self) -> int:
        return len(self._replicas)

    def get(self, incarnation: int) -> Replica | None:
        """Return a replica, or null when it is unknown or lost."""
        return self._replicas.get(incarnation)

    def of_group(self, group: str) -> list[Replica]:
        """Return the replicas of a logical group, in order of registration."""
        return [one for one in self if stage_of(one.registration.group) == group]

    def check(self, registration: Registration) -> None:
        """Refuse a replica that could not register; raises as `register`."""
        if registration.incarnation in self._replaced:
            raise StaleIncarnation(
                f"a newer process than incarnation {registration.incarnation} "
                f"answers at {registration.address}"
            )
        group = stage_of(registration.group)
        expected = self.topology.stages_of(group)
        offered = sorted(map(stage_of, registration.instances))
        if not expected or offered != sorted(expected):
            raise ConfigMismatch(
                f"group '{registration.group}' holds {offered}; this pipeline has "
                f"{sorted(expected) if expected else 'no such group'}"
            )

    def register(self, registration: Registration, now: float) -> list[int]:
        """Take in a replica, or take it back after a cut; its instances start not ready.

        Returns:
            Incarnations that this registration replaces: they are lost, and the caller must say so.

        Raises:
            ConfigMismatch: it does not hold exactly the stages of one of the pipeline's groups.
            StaleIncarnation: a newer process has answered at its address.
        """
        self.check(registration)
        known = self._replicas.get(registration.incarnation)
        if known is not None:
            known.connected, known.heard = True, now
            return []
        replaced = [
            one.incarnation for one in self if one.registration.address == registration.address
        ]
        for incarnation in replaced:
            self._remember_replaced(incarnation)
        self._turn += 1
        self._replicas[registration.incarnation] = Replica(
            registration,
            heard=now,
            order=self._turn,
            not_ready=dict.fromkeys(registration.instances, "starting"),
            serves=self._serves(registration),
            cold=self._warm_ups_of(stage_of(registration.group)),
        )
        return replaced

    def remove(self, incarnation: int) -> Replica | None:
        """Forget a lost replica; returns it, or null when it was unknown."""
        return self._replicas.pop(incarnation, None)

    def set_ready(self, incarnation: int, instance: str, *, reason: str | None) -> None:
        """Note that an instance is ready (no reason) or why it is not."""
        replica = self._replicas.get(incarnation)
        if replica is None or instance not in replica.registration.instances:
            return
        if reason is None:
            replica.not_ready.pop(instance, None)
        else:
            replica.not_ready[instance] = reason

    def set_routes(self, routes: Routes) -> None:
        """Learn which revisions of the pipeline there are; bound requests are not affected."""
        self.routes = routes
        for replica in self:
            replica.serves = self._serves(replica.registration)

    def answered(self, warm_up: str, incarnations: Iterable[int]) -> None:
        """Note that a warm-up was answered with these replicas."""
        for incarnation in incarnations:
            replica = self._replicas.get(incarnation)
            if replica is not None:
                replica.cold.discard(warm_up)

    def hear_everybody(self, now: float) -> None:
        """Count silence anew: until now it was this process that did not listen."""
        for replica in self:
            replica.heard = now

    def silent_since(self, now: float) -> list[int]:
        """Return replicas from which nothing was heard for a lease."""
        limit = now - self.lease_seconds
        return [one.incarnation for one in self if one.heard <= limit]

    def next_expiry(self) -> float | None:
        """Return when the first lease runs out if nothing is heard, or null without replicas."""
        return min((one.heard + self.lease_seconds for one in self), default=None)

    def take_turn(self, replica: Replica) -> None:
        """Note that a replica was chosen, so that others of equal load go first."""
        self._turn += 1
        replica.last_bound = self._turn

    def _serves(self, registration: Registration) -> frozenset[str]:
        return self.routes.serves(registration.group, registration.revision)

    def _warm_ups_of(self, group: str) -> set[str]:
        topology = self.topology
        return {name for name in topology.warm_ups if group in topology.warm_up_groups(name)}

    def _remember_replaced(self, incarnation: int) -> None:
        self._replaced[incarnation] = None
        if len(self._replaced) > REPLACED_MEMORY:
            del self._replaced[next(iter(self._replaced))]
