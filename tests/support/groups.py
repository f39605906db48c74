"""A gateway's side of control sessions that keeps what it gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from omni_wire.control_server import GroupConnection
from omni_wire.edge import Release
from omni_wire.errors import ServiceError
from omni_wire.identity import RequestKey
from omni_wire.messages import GroupMessage, Hello, keys_of
from tests.support.patience import PATIENT_SECONDS


@dataclass(slots=True)
class KeptGroups:
    """A GroupRegistry.

    Attributes:
        refuse: raised for every group that asks.
        holds: whether to keep the credit of a request.
        kept: releases not called.
    """

    refuse: ServiceError | None = None
    holds: Callable[[RequestKey], bool] = field(default=lambda key: False)
    groups: list[GroupConnection] = field(default_factory=list)
    messages: list[GroupMessage] = field(default_factory=list)
    kept: list[Release] = field(default_factory=list)
    cuts: list[bool] = field(default_factory=list)
    stalls: list[tuple[RequestKey, bool]] = field(default_factory=list)
    lost: list[tuple[GroupConnection, ServiceError]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def check(self, hello: Hello) -> None:
        if self.refuse is not None:
            raise self.refuse

    def on_group(self, group: GroupConnection) -> None:
        self.groups.append(group)
        self.changed.set()

    def on_group_cut(self, group: GroupConnection, cut: bool) -> None:
        self.cuts.append(cut)

    def on_group_message(
        self, group: GroupConnection, message: GroupMessage, release: Release
    ) -> None:
        self.messages.append(message)
        if any(map(self.holds, keys_of(message))):
            self.kept.append(release)
        else:
            release()
        self.changed.set()

    def on_group_stall(self, group: GroupConnection, key: RequestKey, stalled: bool) -> None:
        self.stalls.append((key, stalled))

    def on_group_lost(self, group: GroupConnection, error: ServiceError) -> None:
        self.lost.append((group, error))
        self.changed.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for something this registry sees; the limit only ends a broken test."""
        async with asyncio.timeout(PATIENT_SECONDS):
            while not reached():
                self.changed.clear()
                await self.changed.wait()
