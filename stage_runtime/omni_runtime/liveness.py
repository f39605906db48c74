"""Whether the schedulers of a process move, as a health service of its own.

A process whose event loop answers while a scheduler hangs in a step would otherwise look healthy
for ever. That the loop itself runs is told to the launcher, which alone can notice when it stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from omni_runtime.logging import EventLogger
from omni_runtime.scheduler import Scheduler
from omni_wire.server import WireServer
from omni_wire.supervision import notify_alive, notify_stuck

logger = EventLogger(__name__)

LIVENESS = "liveness"
"""Name under which gRPC health answers for it."""

LONGEST_CHECK_SECONDS = 5.0


def stuck_seconds(scheduler: Scheduler, now: float) -> float:
    """Return for how long a scheduler has been in one step, or left a message waiting."""
    waiting_since = scheduler.inbox.waiting_since
    waiting = 0.0 if waiting_since is None else now - waiting_since
    return max(scheduler.heartbeat.stuck_seconds(now), waiting)


async def keep_liveness(
    server: WireServer, schedulers: Iterable[Scheduler], limit_seconds: float
) -> None:
    """Keep the health service up to date until cancelled.

    Args:
        limit_seconds: longest step of a healthy scheduler.
    """
    loop = asyncio.get_running_loop()
    watched = list(schedulers)
    alive = True
    await server.set_serving(LIVENESS, True)
    try:
        while True:
            notify_alive()
            await asyncio.sleep(min(limit_seconds / 4, LONGEST_CHECK_SECONDS))
            moving = all(stuck_seconds(each, loop.time()) < limit_seconds for each in watched)
            if moving != alive:
                logger.warning("a scheduler is stuck" if alive else "schedulers move again")
                alive = moving
                await server.set_serving(LIVENESS, alive)
            if not alive:
                notify_stuck()
    finally:
        notify_alive(expected=False)
