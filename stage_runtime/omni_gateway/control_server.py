"""Where group processes register: their sessions joined to the Coordinator."""

from __future__ import annotations

from omni_gateway.coordinator import Coordinator, Registration, ReplicaGate
from omni_wire.control_server import ControlServer, GroupConnection
from omni_wire.edge import EdgeOptions, Release
from omni_wire.errors import ConfigMismatch, InstanceLost, ServiceError
from omni_wire.identity import RequestKey
from omni_wire.messages import Abort, GatewayMessage, GroupMessage, Hello

CREDIT_BYTES_PER_GROUP = 256 << 20
CREDIT_BYTES_PER_REQUEST = 1 << 20
"""Unread output that one group may send for one request; some twenty seconds of sound."""


def control_server(coordinator: Coordinator, config_hash: str) -> ControlServer:
    """Return the control service of a Coordinator.

    Args:
        config_hash: hash of the resolved configuration that the gateway itself runs.
    """
    options = EdgeOptions(
        edge_credit_bytes=CREDIT_BYTES_PER_GROUP,
        request_credit_bytes=CREDIT_BYTES_PER_REQUEST,
        reconnect_seconds=coordinator.state.options.lease_seconds,
    )
    registry = _Registry(coordinator, config_hash)
    registry.server = ControlServer(coordinator.gateway, registry, options)
    return registry.server


class _Registry:
    """Implements `omni_wire.control_server.GroupRegistry`."""

    server: ControlServer

    def __init__(self, coordinator: Coordinator, config_hash: str) -> None:
        self._gate = ReplicaGate(coordinator)
        self._directory = coordinator.state.directory
        self._config_hash = config_hash

    def check(self, hello: Hello) -> None:
        """Refuse a group of another configuration or with other stages, or one that was replaced.

        Raises:
            ConfigMismatch, StaleIncarnation: it cannot serve here.
        """
        if not self._belongs(hello):
            raise ConfigMismatch(
                f"group '{hello.group}' runs configuration {hello.config_hash or 'unknown'}, "
                "which this gateway does not serve"
            )
        self._gate.check(_registration(hello))

    def _belongs(self, hello: Hello) -> bool:
        # A revision may change the configuration; its pods belong here when the routes name them.
        return hello.config_hash == self._config_hash or self._directory.routes.knows(
            hello.group, hello.revision
        )

    def on_group(self, group: GroupConnection) -> None:
        """Take in a replica."""
        link = _Link(group, self.server)
        self._gate.register(_registration(group.hello), link)

    def on_group_cut(self, group: GroupConnection, cut: bool) -> None:
        """Bind a replica last while its stream is broken."""
        self._gate.connected(group.hello.incarnation, not cut)

    def on_group_message(
        self, group: GroupConnection, message: GroupMessage, release: Release
    ) -> None:
        """Hand on what a replica says."""
        self._gate.deliver(group.hello.incarnation, message, release)

    def on_group_stall(self, group: GroupConnection, key: RequestKey, stalled: bool) -> None:
        """A submission waits for credit: its deadline will end it if that takes too long."""

    def on_group_lost(self, group: GroupConnection, error: ServiceError) -> None:
        """Fail what is bound to a replica that is gone for good."""
        self._gate.lost(group.hello.incarnation, error.message)


class _Link:
    """Implements `omni_gateway.coordinator.ReplicaLink`."""

    def __init__(self, group: GroupConnection, server: ControlServer) -> None:
        self._group = group
        self._server = server

    def post(self, message: GatewayMessage) -> None:
        """Send a message; an abort overtakes what waits for its request, which is dropped."""
        if isinstance(message, Abort):
            self._group.session.outbox.abort(message)
        else:
            self._group.post(message)

    def close(self) -> None:
        """End the session, so that the process can only register anew."""
        self._server.dismiss(self._group, InstanceLost("the gateway gave the group up"))


def _registration(hello: Hello) -> Registration:
    return Registration(
        hello.group, hello.incarnation, hello.address, hello.instances, hello.revision
    )
