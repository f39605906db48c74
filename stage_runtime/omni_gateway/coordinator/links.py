"""What the Coordinator needs of a connection to a group process."""

from __future__ import annotations

from typing import Protocol

from omni_wire.messages import GatewayMessage


class ReplicaLink(Protocol):
    """The way to one registered group process."""

    def post(self, message: GatewayMessage) -> None:
        """Send a message after those posted before; never blocks.

        Raises:
            ServiceError: the message cannot be sent at all; the replica will never see it.
        """

    def close(self) -> None:
        """Give the replica up: it is lost, and nothing will be posted any more."""
