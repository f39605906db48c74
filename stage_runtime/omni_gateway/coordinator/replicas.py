"""What group processes tell the Coordinator: registration, state and output."""

from __future__ import annotations

import time

from omni_gateway.coordinator.coordinator import Coordinator
from omni_gateway.coordinator.directory import Registration, Replica, ReplicaStats
from omni_gateway.coordinator.events import (
    AbortAcked,
    ReplicaLost,
    ReplicasChanged,
    StageCompleted,
    StageFailed,
)
from omni_gateway.coordinator.frames import FrameRelease, outputs_of, tree_bytes
from omni_gateway.coordinator.links import ReplicaLink
from omni_gateway.coordinator.routes import Routes
from omni_runtime.logging import EventLogger
from omni_wire import messages
from omni_wire.errors import RequestAborted
from omni_wire.identity import stage_of
from omni_wire.messages import Message

logger = EventLogger(__name__)


class ReplicaGate:
    """Takes in replicas and hands what they send to the Coordinator.

    Messages of a replica that is unknown or lost change nothing; their credit is returned, so that
    the sender is never held back by a gateway that does not listen.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._directory = coordinator.state.directory

    def register(self, registration: Registration, link: ReplicaLink) -> None:
        """Take in a replica, or take it back after a cut.

        Raises:
            ConfigMismatch, StaleIncarnation: see `Directory.register`.
        """
        replaced = self._directory.register(registration, time.monotonic())
        for incarnation in replaced:
            reason = "a newer process answers at its address"
            self._coordinator.apply(ReplicaLost(incarnation, reason))
        self._coordinator.attach(registration.incarnation, link)
        logger.info(
            "replica registered",
            group=registration.group,
            incarnation=registration.incarnation,
            address=registration.address,
            revision=registration.revision or "-",
        )
        self._changed()

    def check(self, registration: Registration) -> None:
        """Refuse a replica that could not register; raises as `register`."""
        self._directory.check(registration)

    def set_routes(self, routes: Routes) -> None:
        """Learn which revisions of the pipeline there are now."""
        self._directory.set_routes(routes)
        self._changed()

    def connected(self, incarnation: int, connected: bool) -> None:
        """Note whether a replica's stream is there; without one it has a lease to come back."""
        replica = self._directory.get(incarnation)
        if replica is not None:
            replica.connected = connected

    def lost(self, incarnation: int, reason: str) -> None:
        """Give a replica up: it said goodbye, or cannot come back."""
        self._coordinator.apply(ReplicaLost(incarnation, reason))

    def deliver(self, incarnation: int, message: Message, release: FrameRelease) -> None:
        """Take in one message of a replica."""
        replica = self._directory.get(incarnation)
        if replica is None:
            release()
            return
        replica.heard = time.monotonic()
        if isinstance(message, messages.OutputFrame):
            self._outputs(replica, message, release)
            return
        release()
        self._other(replica, message)

    def _outputs(
        self, replica: Replica, frame: messages.OutputFrame, release: FrameRelease
    ) -> None:
        outputs = list(outputs_of(frame, replica.incarnation, release))
        counts = self._coordinator.metrics.counts
        counts.frames += 1
        counts.chunks += len(outputs)
        counts.chunk_bytes += sum(output.size_bytes for _, output in outputs)
        self._coordinator.receive(outputs)

    def _other(self, replica: Replica, message: Message) -> None:
        sender, apply = replica.incarnation, self._coordinator.apply
        match message:
            case messages.Completed(key, source, result):
                size = tree_bytes(result)
                apply(StageCompleted(key, sender, stage_of(source), result, size))
            case messages.Failed(key, _, error):
                apply(StageFailed(key, sender, error))
            case messages.Abort(key, reason):
                apply(StageFailed(key, sender, RequestAborted(reason).info))
            case messages.AbortAck(key):
                apply(AbortAcked(key, sender))
            case messages.Ready():
                self._ready(replica, message)
            case messages.Draining(instances):
                self._draining(replica, instances)
            case messages.Stats():
                replica.stats[message.instance] = _stats(message)
            case _:
                kind = type(message).__name__
                logger.warning("no message for a gateway", incarnation=sender, message=kind)

    def _ready(self, replica: Replica, message: messages.Ready) -> None:
        # A group that becomes ready again has called its drain off.
        replica.draining = replica.draining and not message.ready
        replica.let_go = replica.let_go and replica.draining
        reason = None if message.ready else message.reason or "not ready"
        self._directory.set_ready(replica.incarnation, message.instance, reason=reason)
        self._changed()

    def _draining(self, replica: Replica, instances: tuple[str, ...]) -> None:
        replica.draining = replica.draining or not instances
        for instance in instances:
            self._directory.set_ready(replica.incarnation, instance, reason="draining")
        self._changed()

    def _changed(self) -> None:
        self._coordinator.refresh()
        self._coordinator.apply(ReplicasChanged())


def _stats(message: messages.Stats) -> ReplicaStats:
    return ReplicaStats(
        message.queued, message.in_flight, message.heartbeat, message.heartbeat_age_seconds
    )
