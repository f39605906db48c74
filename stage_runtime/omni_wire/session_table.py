"""The accepting side of many sessions: which stream belongs to which, and how long each is kept.

A session whose stream broke waits for the next one; its peer counts as lost when none comes in
time, when it ends the stream itself, or when another process took its place.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from omni_wire.errors import InstanceLost, ServiceError, StaleIncarnation
from omni_wire.handshake import Peer
from omni_wire.session import Session
from omni_wire.streams import ByteStream

# Sessions and incarnations remembered as ended, oldest forgotten first.
_REMEMBERED = 1_000
# The dialling side gives up first, so that it never comes back to a session that is gone.
_PATIENCE = 1.5

OnLost = Callable[[ServiceError], None]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who dials.

    Attributes:
        name: tells apart callers that may be connected at the same time.
        incarnation: of its process.
        session: number of its session.
    """

    name: str
    incarnation: int
    session: int


class Hosted:
    """A session with the caller it belongs to."""

    __slots__ = ("caller", "carrying", "ended", "expiry", "on_lost", "session")

    def __init__(self, caller: Caller, session: Session, on_lost: OnLost) -> None:
        self.caller = caller
        self.session = session
        self.on_lost = on_lost
        self.carrying: asyncio.Task[None] | None = None
        self.expiry: asyncio.TimerHandle | None = None
        self.ended: ServiceError | None = None


class SessionTable:
    """Sessions by the name of their caller."""

    def __init__(self) -> None:
        self._hosted: dict[str, Hosted] = {}
        self._ended: OrderedDict[tuple[str, int], None] = OrderedDict()

    def open(self, caller: Caller, make: Callable[[], tuple[Session, OnLost]]) -> Hosted:
        """The session a caller dials for: the one it had, or a new one from `make`.

        A new session or incarnation ends what the caller had before.

        Raises:
            StaleIncarnation: the session has ended here, or its process has been replaced.
        """
        known = self._hosted.get(caller.name)
        if known is not None and known.caller == caller:
            return known
        stale = (caller.name, caller.session), (caller.name, caller.incarnation)
        if any(number in self._ended for number in stale):
            raise StaleIncarnation(f"{caller.name} has been replaced, or its session has ended")
        if known is not None:
            if known.caller.incarnation != caller.incarnation:
                self._remember(caller.name, known.caller.incarnation)
            self.end(known, InstanceLost(f"{caller.name} was replaced by another process"))
        hosted = Hosted(caller, *make())
        self._hosted[caller.name] = hosted
        return hosted

    async def carry(self, hosted: Hosted, stream: ByteStream, peer: Peer) -> None:
        """Run a session over a stream, in place of the stream it may still have.

        Raises:
            ServiceError: the session cannot go on; it has ended.
            StreamBroken: another stream may carry it on.
        """
        await self.detach(hosted)
        if hosted.expiry is not None:
            hosted.expiry.cancel()
        hosted.carrying = asyncio.create_task(hosted.session.carry(stream, peer))
        carrying = hosted.carrying
        try:
            await asyncio.wait((carrying,))
        finally:
            carrying.cancel()
            await asyncio.wait((carrying,))
            if hosted.carrying is carrying:
                hosted.carrying = None
                self._broken(hosted, carrying)
        if hosted.ended is not None:
            raise hosted.ended
        if not carrying.cancelled():
            carrying.result()

    async def detach(self, hosted: Hosted) -> None:
        """Take a session off the stream it has, which may not know yet that it is dead."""
        carrying, hosted.carrying = hosted.carrying, None
        if carrying is not None:
            carrying.cancel()
            await asyncio.wait((carrying,))

    def _broken(self, hosted: Hosted, carrying: asyncio.Task[None]) -> None:
        """The stream of a session ended, and no other has taken its place."""
        error = None if carrying.cancelled() else carrying.exception()
        name = hosted.caller.name
        if isinstance(error, ServiceError):
            self.end(hosted, error)
        elif error is None and not carrying.cancelled():
            self.end(hosted, InstanceLost(f"{name} ended the session"))
        elif self._hosted.get(name) is hosted:
            seconds = hosted.session.options.reconnect_seconds * _PATIENCE
            lost = InstanceLost(f"{name} did not come back within {seconds:g} s")
            loop = asyncio.get_running_loop()
            hosted.expiry = loop.call_later(seconds, self.end, hosted, lost)

    def end(self, hosted: Hosted, error: ServiceError) -> None:
        """Forget a session and tell its owner why."""
        if self._hosted.get(hosted.caller.name) is not hosted:
            return
        del self._hosted[hosted.caller.name]
        hosted.ended = error
        self._remember(hosted.caller.name, hosted.caller.session)
        if hosted.expiry is not None:
            hosted.expiry.cancel()
        if hosted.carrying is not None:
            hosted.carrying.cancel()
        hosted.session.close()
        hosted.on_lost(error)

    def dismiss(self, session: Session, error: ServiceError) -> None:
        """End a session that is known by itself alone; one that has ended already stays so."""
        for hosted in list(self._hosted.values()):
            if hosted.session is session:
                self.end(hosted, error)

    def _remember(self, name: str, number: int) -> None:
        self._ended[name, number] = None
        if len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)

    def close(self, error: ServiceError) -> None:
        """End every session."""
        for hosted in list(self._hosted.values()):
            self.end(hosted, error)
