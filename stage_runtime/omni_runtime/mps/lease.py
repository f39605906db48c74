"""One lease on one card: taken, watched over and given back.

Evidence is gathered and acted on under the card's lock. Waiting for clients to go happens outside
it, so that other launchers are not held up.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

from omni_runtime.mps.card_inspection import inspect, inspect_daemon, seen_clients
from omni_runtime.mps.card_store import CardStore, write_status
from omni_runtime.mps.control import ClientRef, MpsControl
from omni_runtime.mps.daemon import LeaseTimes, quit_daemon
from omni_runtime.mps.errors import MpsControlFailed, MpsNotAttached, MpsRetained, MpsUnhealthy
from omni_runtime.mps.lease_rules import (
    DaemonState,
    DropOwner,
    QuitDaemon,
    Retain,
    decide_release,
    release_blockers,
)

STARTING, ACTIVE, RETAINED = "starting", "active", "retained"
"""What an owner file says: the daemon is being started, is in use, was not given back cleanly."""


class MpsLease:
    """A held lease. Made by `acquire_lease`; given back by `release`.

    Args:
        owner: run id of the holder, the first part of its clients' tokens.
        descriptor: keeps the owner file locked.
    """

    def __init__(
        self, store: CardStore, control: MpsControl, owner: str, descriptor: int, times: LeaseTimes
    ) -> None:
        self._store, self._control, self._times = store, control, times
        self.owner, self._descriptor = owner, descriptor

    @property
    def card(self) -> str:
        """The leased card."""
        return self._store.card

    async def wait_attached(self, tokens: Iterable[str]) -> None:
        """Wait until a process with each of these tokens is attached.

        Raises:
            MpsNotAttached: one is not, in time.
            MpsControlFailed: the daemon does not answer.
        """
        missing = set(tokens)
        deadline = asyncio.get_running_loop().time() + self._times.attach
        while missing := missing - {each.token for each in await seen_clients(self._control)}:
            if asyncio.get_running_loop().time() > deadline:
                raise MpsNotAttached(
                    f"{', '.join(sorted(missing))} never attached to the MPS server of {self.card} "
                    f"(pipe directory {self._store.pipe}) within {self._times.attach:g} s and "
                    "would use the card by time slices"
                )
            await asyncio.sleep(self._times.look_again)

    async def probe(self) -> None:
        """Check that the daemon is still the same and answers.

        Raises:
            MpsUnhealthy: it is not, or does not.
        """
        seen = inspect_daemon(self._store, self._control)
        if seen.state is not DaemonState.PROVEN:
            raise MpsUnhealthy(f"MPS daemon of {self.card}: {seen.detail}")
        try:
            await self._control.servers()
        except MpsControlFailed as error:
            raise MpsUnhealthy(f"MPS daemon of {self.card}: {error}") from error

    async def detach(self, token: str) -> tuple[ClientRef, ...]:
        """Detach the processes with a token through the daemon; return them.

        Raises:
            MpsControlFailed: the daemon does not answer.
        """
        found = [each.ref for each in await seen_clients(self._control) if each.token == token]
        for client in found:
            await self._control.terminate_client(client)
        return tuple(found)

    async def release(self) -> None:
        """Give the lease back; as the last owner, end the daemon and remove its state.

        Raises:
            MpsRetained: it cannot be proven that nobody is left. The state is kept, and a later
                lease cleans it up once that can be proven.
        """
        try:
            await self._wait_for_leaving()
            async with self._store.locked():
                seen = await inspect(self._store, self._control, self.owner)
                match decide_release(seen, self.owner):
                    case Retain(reason):
                        self._retain(reason)
                    case DropOwner(forget):
                        for name in (*forget, self.owner):
                            self._store.forget_owner(name)
                    case QuitDaemon():
                        await self._quit(seen.daemon_pid)
        finally:
            os.close(self._descriptor)

    async def _quit(self, pid: int | None) -> None:
        assert pid is not None  # only a proven daemon is asked to quit
        try:
            await quit_daemon(self._control, pid, self._times)
        except MpsControlFailed as error:
            self._retain(str(error))
        self._store.remove()

    async def _wait_for_leaving(self) -> None:
        """Wait a bounded time for clients to go; whether they went is decided afterwards."""
        deadline = asyncio.get_running_loop().time() + self._times.leave
        while asyncio.get_running_loop().time() < deadline:
            seen = await inspect(self._store, self._control, self.owner)
            if seen.clients is None or not release_blockers(seen, self.owner):
                return
            await asyncio.sleep(self._times.look_again)

    def _retain(self, reason: str) -> None:
        write_status(self._descriptor, RETAINED)
        raise MpsRetained(
            f"the MPS lease on {self.card} was not given back cleanly: {reason}. "
            f"Its state is kept in {self._store.path}"
        )
