"""What a supervisor is told and what it asks for."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """Where one process is."""

    WAITING = "waiting"
    """Another process must be ready first."""
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    """It was told to end."""
    RESTARTING = "restarting"
    """It ended and is started again in a moment."""
    ENDED = "ended"


class TimerKind(StrEnum):
    """What a timer is for."""

    START = "start"
    """The process made no progress while starting."""
    STOP = "stop"
    """The process has not ended after the last signal."""
    RESTART = "restart"
    """The pause before a restart is over."""


@dataclass(frozen=True, slots=True)
class Timer:
    """One timer; setting it again replaces it.

    Attributes:
        attempt: which start of the process it is about, so that a late timer means nothing.
    """

    kind: TimerKind
    name: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Begun:
    """The run begins."""


@dataclass(frozen=True, slots=True)
class BecameReady:
    """A process accepts work."""

    name: str


@dataclass(frozen=True, slots=True)
class MadeProgress:
    """A process said or logged something."""

    name: str


@dataclass(frozen=True, slots=True)
class GotStuck:
    """A process said of itself that it will not recover."""

    name: str


@dataclass(frozen=True, slots=True)
class Exited:
    """A process ended.

    Attributes:
        code: exit status, or the negative number of the signal that killed it.
    """

    name: str
    code: int


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that was asked for ran out."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Someone wants the run to end: once to drain, twice to stop now, three times to kill.

    Attributes:
        cause: set when the run cannot go on and must not wait for requests in flight.
    """

    cause: str | None = None


Event = Begun | BecameReady | MadeProgress | GotStuck | Exited | TimerFired | StopRequested


@dataclass(frozen=True, slots=True)
class Start:
    """Start a process; `attempt` counts its starts from 1."""

    name: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a signal to a process, SIGKILL to all its descendants too."""

    name: str
    signal: signal.Signals


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Report `timer` after so many seconds."""

    timer: Timer
    seconds: float


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the user something about a process, or about the run when `name` is empty."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ShowFailure:
    """Tell why a process failed, with its last log lines."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class AllReady:
    """For the first time every process is ready."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Every process ended; the run ends with this exit code."""

    code: int


Instruction = Start | Send | SetTimer | Say | ShowFailure | AllReady | Finish
