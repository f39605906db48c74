"""What one process shares: the weights it published, or those it attached to."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from omni_runtime.logging import EventLogger
from omni_runtime.weight_share.errors import CannotShare
from omni_runtime.weight_share.role import LEADER_LOST_EXIT, WeightShareRole

if TYPE_CHECKING:
    from omni_runtime.weight_share.connection import Connection
    from omni_runtime.weight_share.publication import Publication

logger = EventLogger(__name__)


def end_process(stage: str) -> None:
    """End this process: what its weights lie in belongs to a process that is gone.

    Nothing can be finished. On a GPU the memory is unmapped, and every step would read garbage or
    fault.
    """
    logger.warning("the leader of the shared weights ended, so this process ends too", stage=stage)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(LEADER_LOST_EXIT)


class WeightShare:
    """The shared weights of one process.

    Args:
        facts: what leader and followers must have alike beside the model: the configuration.
        on_leader_lost: called with the stage on a thread of its own when the leader has ended.
    """

    def __init__(
        self,
        role: WeightShareRole,
        facts: Mapping[str, str],
        on_leader_lost: Callable[[str], None] = end_process,
    ) -> None:
        self.role = role
        self.facts = facts
        self._on_leader_lost = on_leader_lost
        self._published: list[Publication] = []
        self._held: list[Connection] = []

    def keep(self, publication: Publication) -> None:
        """Keep what was published until `close`."""
        self._published.append(publication)

    def hold(self, stage: str, connection: Connection) -> None:
        """Hold the connection to the leader and watch for its end."""
        self._held.append(connection)

        def watch() -> None:
            connection.wait_closed()
            if not connection.closed_here:
                self._on_leader_lost(stage)

        threading.Thread(target=watch, name=f"leader of {stage}", daemon=True).start()

    def require_used(self) -> None:
        """Check that something was shared: memory that is there twice is found by nobody else.

        Raises:
            CannotShare: no stage of the process took the offer.
        """
        if not self._published and not self._held:
            raise CannotShare(
                "weight_share is on, but no stage of this process loaded a model through it; a "
                "stage shares what it loads with omni_runtime.weight_share.modules.filled_module, "
                "or use weight_share=off"
            )

    def wait_unused(self, seconds: float) -> bool:
        """Wait until no follower is attached; return whether none is.

        A leader that leaves takes its followers along, so one that is told to stop lets them
        finish their requests first.
        """
        until = time.monotonic() + seconds
        return all(each.wait_unused(until - time.monotonic()) for each in self._published)

    def close(self) -> None:
        """Stop offering and let go of what is held. Aliased tensors stay valid on the CPU."""
        for publication in self._published:
            publication.close()
        for connection in self._held:
            connection.close()
