"""A rank other than 0: builds its part of the stage and takes every step that rank 0 takes.

It has neither edges nor gateways. It stops when rank 0 says so and fails when rank 0 is gone.
"""

from __future__ import annotations

import signal
import sys

from omni_runtime.group_config import GroupOptions, PlannedGroup
from omni_runtime.group_stages import build_schedulers
from omni_runtime.logging import EventLogger
from omni_runtime.tensor_parallel import FollowerInbox, NoOutbox
from omni_wire.supervision import notify_ready, notify_status

logger = EventLogger(__name__)


def run_follower(options: GroupOptions, planned: PlannedGroup) -> None:
    """Join rank 0, build, and follow until it stops.

    Raises:
        RankLost: rank 0 is gone.
        FactoryFailed: the stage could not be built.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    inbox = FollowerInbox(options.listen)
    notify_status("waiting for rank 0")
    settings = inbox.join()
    notify_status("building stages")
    builds = planned.builds(options.one_card, settings.nccl_port)
    (scheduler,) = build_schedulers(builds, options.construction_lock).values()
    scheduler.inbox = inbox
    inbox.on_stop(scheduler.stop)
    # From here on rank 0 drains and then stops every rank; leaving earlier would break its last
    # steps.
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    inbox.report("built")
    notify_ready()
    logger.info("following rank 0")
    scheduler.run(NoOutbox())
    inbox.close()
