"""How the processes of a run depend on each other, and how long to wait for them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Role:
    """How one process stands to the others.

    Attributes:
        starts_after: process that must be ready first, null when none.
        takes_down: processes that cannot go on without it and restart with it.
        stop_rank: processes of the lowest rank stop first.
        drains: it may finish requests before it stops.
        restarts: it is started again when it ends; else the run ends with it.
    """

    name: str
    starts_after: str | None = None
    takes_down: tuple[str, ...] = ()
    stop_rank: int = 2
    drains: bool = False
    restarts: bool = True


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds, before the next step.

    Attributes:
        start: without any progress of a starting process.
        drain: for requests in flight.
        terminate: from SIGTERM to SIGKILL.
        kill: from SIGKILL until a process is left behind.
        first_restart: before the first restart; doubles with each failure in a row.
        last_restart: the longest pause.
        stable: ready for so long, a process that ends has not failed in a row.
    """

    start: float = 600.0
    drain: float = 30.0
    terminate: float = 10.0
    kill: float = 10.0
    first_restart: float = 0.25
    last_restart: float = 30.0
    stable: float = 10.0
