"""When a card may be leased, and how it is given back. Pure: sightings in, a decision out.

The rule behind all others: act on a proof, refuse on a doubt. A daemon is proven when the process
its native pid file names is the very one that was recorded when an owner started it. An owner is
alive exactly while it holds the lock on its file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from omni_runtime.mps.control import ClientRef


class DaemonState(StrEnum):
    """What can be said of the daemon of a card."""

    ABSENT = "absent"
    """The recorded process is gone, or none was ever started."""
    PROVEN = "proven"
    REPLACED = "replaced"
    """Another process than the recorded one answers for the directory."""
    UNKNOWN = "unknown"
    """There are signs of a daemon, and no record to compare them with."""


@dataclass(frozen=True, slots=True)
class OwnerSeen:
    """One owner file.

    Attributes:
        name: run id of the owner; the first part of its clients' tokens.
        alive: it still holds the lock on its file.
        status: `starting`, `active` or `retained`.
    """

    name: str
    alive: bool
    status: str


@dataclass(frozen=True, slots=True)
class ClientSeen:
    """One attached process.

    Attributes:
        token: what its launcher named it, `run id/group`; empty when it has none.
    """

    ref: ClientRef
    token: str

    @property
    def owner(self) -> str:
        """Run id of the owner it belongs to, empty when it belongs to none."""
        return self.token.partition("/")[0]


@dataclass(frozen=True, slots=True)
class CardSeen:
    """Everything that was found about one card.

    Attributes:
        clients: attached processes, null when the daemon did not answer.
        users: processes of this user that were started with the card's pipe directory.
        detail: why the daemon is not proven or does not answer.
    """

    daemon: DaemonState
    owners: tuple[OwnerSeen, ...]
    clients: tuple[ClientSeen, ...] | None
    users: tuple[int, ...] = ()
    daemon_pid: int | None = None
    detail: str = ""

    @property
    def living(self) -> tuple[str, ...]:
        """Names of owners that are alive."""
        return tuple(owner.name for owner in self.owners if owner.alive)

    @property
    def dead(self) -> tuple[str, ...]:
        """Names of owners that are not."""
        return tuple(owner.name for owner in self.owners if not owner.alive)


@dataclass(frozen=True, slots=True)
class Join:
    """Use the running daemon; forget these dead owners, who left no client."""

    forget: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Nobody uses what is there: end the daemon if there is one, remove everything, start anew.

    Attributes:
        quit: ask the daemon to end.
        terminate: process id of a proven daemon that no longer answers.
    """

    quit: bool
    terminate: int | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """Nothing may be touched."""

    reason: str


@dataclass(frozen=True, slots=True)
class DropOwner:
    """Others still use the daemon: only the own file goes, and those of dead owners."""

    forget: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuitDaemon:
    """Nobody is left: end the daemon and remove its directory."""


@dataclass(frozen=True, slots=True)
class Retain:
    """It cannot be proven that nobody is left: keep everything."""

    reason: str


def decide_acquire(seen: CardSeen, owner: str) -> Join | Rebuild | Refuse:
    """Return what to do with a card whose state directory exists."""
    if any(each.name == owner for each in seen.owners):
        return Refuse(f"this run already holds a lease as {owner}")
    match seen.daemon:
        case DaemonState.REPLACED | DaemonState.UNKNOWN:
            return Refuse(f"its daemon cannot be proven: {seen.detail}")
        case DaemonState.ABSENT:
            return _without_daemon(seen)
        case DaemonState.PROVEN:
            return _with_daemon(seen)


def decide_release(seen: CardSeen, owner: str) -> DropOwner | QuitDaemon | Retain:
    """Return how an owner leaves, once its clients had time to go."""
    if seen.daemon is not DaemonState.PROVEN:
        return Retain(f"the daemon is {seen.daemon}: {seen.detail}")
    if seen.clients is None:
        return Retain(f"the daemon does not answer: {seen.detail}")
    blocking = release_blockers(seen, owner)
    if blocking:
        return Retain(f"clients are still attached: {_shown(blocking)}")
    others = tuple(name for name in seen.living if name != owner)
    if others:
        return DropOwner(seen.dead)
    return QuitDaemon()


def release_blockers(seen: CardSeen, owner: str) -> tuple[ClientSeen, ...]:
    """Return the clients that must go before an owner leaves: its own and those of nobody."""
    living = {name for name in seen.living if name != owner}
    return tuple(client for client in seen.clients or () if client.owner not in living)


def _without_daemon(seen: CardSeen) -> Rebuild | Refuse:
    if seen.living:
        return Refuse(f"its daemon is gone, but these runs still use it: {_names(seen.living)}")
    if seen.users:
        return Refuse(
            f"its daemon is gone, but processes {_pids(seen.users)} were started to use it; "
            f"end them: kill {' '.join(map(str, seen.users))}"
        )
    return Rebuild(quit=False)


def _with_daemon(seen: CardSeen) -> Join | Rebuild | Refuse:
    if seen.clients is None:
        return _mute_daemon(seen)
    orphans = [client for client in seen.clients if client.owner not in seen.living]
    if orphans:
        pids = " ".join(str(client.ref.client_pid) for client in orphans)
        return Refuse(
            f"processes are attached whose owner is gone: {_shown(orphans)}; end them: kill {pids}"
        )
    if seen.living:
        return Join(seen.dead)
    # A client that crashed may have left the server in a bad state, so a fresh one is started.
    return Rebuild(quit=True)


def _mute_daemon(seen: CardSeen) -> Rebuild | Refuse:
    others = tuple(pid for pid in seen.users if pid != seen.daemon_pid)
    if seen.living or others or seen.daemon_pid is None:
        used = f"; in use by {_names(seen.living)} {_pids(others)}".rstrip()
        return Refuse(f"its daemon does not answer: {seen.detail}{used}")
    return Rebuild(quit=False, terminate=seen.daemon_pid)


def _shown(clients: Sequence[ClientSeen]) -> str:
    return ", ".join(
        f"{each.ref.client_pid} ({each.token or 'without a token'})" for each in clients
    )


def _names(names: Sequence[str]) -> str:
    return ", ".join(names)


def _pids(pids: Sequence[int]) -> str:
    return ", ".join(map(str, pids))
