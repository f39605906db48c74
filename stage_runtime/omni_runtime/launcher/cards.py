"""What a run needs to know of GPUs shared through MPS; nothing when none is shared."""

from __future__ import annotations

import asyncio
from typing import NoReturn, Protocol


class Cards(Protocol):
    """The shared cards of a run."""

    def is_client(self, name: str) -> bool:
        """Return whether a process must attach to a shared card."""

    async def check_attached(self, name: str) -> None:
        """Wait until a process has attached.

        Raises:
            OmniError: it has not in time: it would use the card alone, by time slices.
        """

    async def detach(self, name: str) -> None:
        """Detach a stuck process from its card before it is killed."""

    async def watch(self) -> NoReturn:
        """Watch the daemons.

        Raises:
            OmniError: one of them cannot be relied on any more.
        """


class NoSharedCards:
    """No card is shared."""

    def is_client(self, name: str) -> bool:
        return False

    async def check_attached(self, name: str) -> None:
        return

    async def detach(self, name: str) -> None:
        return

    async def watch(self) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError("an event that nobody sets was set")
