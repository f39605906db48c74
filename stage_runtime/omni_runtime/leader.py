"""Rank 0 of a tensor-parallel stage: meets the others, builds, and binds its inbox to theirs."""

from __future__ import annotations

import socket

from omni_runtime.group_config import GroupOptions, PlannedGroup
from omni_runtime.group_stages import build_schedulers
from omni_runtime.scheduler import Scheduler
from omni_runtime.tensor_parallel import LeaderInbox, RankChannel, RankSettings
from omni_wire.supervision import notify_status


def build_leader(options: GroupOptions, planned: PlannedGroup) -> dict[str, Scheduler]:
    """Return the stage's scheduler once every rank has built its own.

    Raises:
        RankLost: a rank did not join or build in time.
        FactoryFailed: the stage could not be built.
    """
    settings = RankSettings(nccl_port=_free_port())
    channel = RankChannel(planned.follower_addresses, settings)
    notify_status("waiting for the other ranks")
    channel.join()
    notify_status("building stages")
    builds = planned.builds(options.one_card, settings.nccl_port)
    schedulers = build_schedulers(builds, options.construction_lock)
    channel.wait_all("build")
    (scheduler,) = schedulers.values()
    scheduler.inbox = LeaderInbox(channel)
    return schedulers


def _free_port() -> int:
    """Return a port that is free now; the ranks' own rendezvous binds it moments later."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
