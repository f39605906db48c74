"""Decides when the processes of a run start, restart and stop. Pure: it never touches one.

A process that ends before it was ever ready ends the run, because the next try would end alike,
unless it ended with the one it started after. One that ends later is restarted, together with those
that cannot go on without it, while the others go on. A stop goes gateway first, so that requests in
flight can finish, then followers, then the rest.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from omni_runtime.launcher.roles import Patience, Role
from omni_runtime.launcher.supervision_events import (
    AllReady,
    BecameReady,
    Begun,
    Event,
    Exited,
    Finish,
    GotStuck,
    Instruction,
    MadeProgress,
    Phase,
    Say,
    Send,
    SetTimer,
    ShowFailure,
    Start,
    StopRequested,
    Timer,
    TimerFired,
    TimerKind,
)
from omni_runtime.weight_share.role import LEADER_LOST_EXIT


@dataclass(slots=True)
class _Process:
    role: Role
    phase: Phase = Phase.WAITING
    attempt: int = 0
    failures: int = 0
    was_ready: bool = False
    ready_at: float = 0.0
    progress_at: float = 0.0
    signals: list[signal.Signals] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.phase in (Phase.STARTING, Phase.READY, Phase.STOPPING)

    def timer(self, kind: TimerKind) -> Timer:
        return Timer(kind, self.role.name, self.attempt)


class Supervisor:
    """The state of one run: `handle` takes an event and returns what to do."""

    def __init__(self, roles: Sequence[Role], patience: Patience) -> None:
        self._processes = {role.name: _Process(role) for role in roles}
        self._patience = patience
        self._restarts: dict[str, frozenset[str]] = {}
        self._stops = 0
        self._exit_code = 0
        self._announced = False

    @property
    def phases(self) -> dict[str, Phase]:
        """Where each process is, in declaration order."""
        return {name: process.phase for name, process in self._processes.items()}

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take in what happened at `now` (monotonic seconds) and return what to do, in order."""
        return list(self._handle(event, now))

    def _handle(self, event: Event, now: float) -> Iterator[Instruction]:
        match event:
            case Begun():
                yield from self._start_all(self._processes, now)
            case BecameReady(name):
                yield from self._ready(self._processes[name], now)
            case MadeProgress(name):
                self._processes[name].progress_at = now
            case GotStuck(name):
                yield from self._stuck(self._processes[name])
            case Exited(name, code):
                yield from self._exited(self._processes[name], code, now)
            case TimerFired(timer):
                yield from self._timer(timer, now)
            case StopRequested(cause):
                yield from self._stop_requested(cause)

    # Starting

    def _start_all(self, names: Iterable[str], now: float) -> Iterator[Instruction]:
        for name in names:
            process = self._processes[name]
            leader = process.role.starts_after
            if leader is None or self._processes[leader].phase is Phase.READY:
                yield from self._start(process, now)
            else:
                process.phase = Phase.WAITING

    def _start(self, process: _Process, now: float) -> Iterator[Instruction]:
        process.phase = Phase.STARTING
        process.attempt += 1
        process.progress_at = now
        process.signals.clear()
        yield Start(process.role.name, process.attempt)
        yield SetTimer(process.timer(TimerKind.START), self._patience.start)

    def _ready(self, process: _Process, now: float) -> Iterator[Instruction]:
        if process.phase is not Phase.STARTING:
            return
        again = process.was_ready
        process.phase, process.was_ready, process.ready_at = Phase.READY, True, now
        name = process.role.name
        yield Say(name, "ready again" if again else "ready")
        for other in self._processes.values():
            if other.role.starts_after == name and other.phase is Phase.WAITING:
                yield from self._start(other, now)
        everything = all(each.phase is Phase.READY for each in self._processes.values())
        if everything and not self._announced:
            self._announced = True
            yield AllReady()

    def _stalled(self, process: _Process, now: float) -> Iterator[Instruction]:
        """Kill a start without progress; its exit is then handled like any other."""
        left = process.progress_at + self._patience.start - now
        if left > 0:
            yield SetTimer(process.timer(TimerKind.START), left)
            return
        yield Say(process.role.name, f"no progress for {self._patience.start:g} s; killing it")
        yield from self._kill(process)

    def _stuck(self, process: _Process) -> Iterator[Instruction]:
        if process.alive:
            yield Say(process.role.name, "is stuck; killing it")
            yield from self._kill(process)

    # Ending and restarting

    def _exited(self, process: _Process, code: int, now: float) -> Iterator[Instruction]:
        if not process.alive:
            return
        told = process.phase is Phase.STOPPING
        starting = process.phase is Phase.STARTING
        name = process.role.name
        if self._stops:
            process.phase = Phase.ENDED
            yield from self._advance_stop()
            return
        process.phase = Phase.RESTARTING
        if told:
            yield from self._schedule_restart(self._cause_of(name))
            return
        leader = process.role.starts_after if code == LEADER_LOST_EXIT else None
        yield ShowFailure(name, _ending(code) if leader is None else f"lost {leader}")
        if not process.was_ready and leader is None:
            process.phase = Phase.ENDED
            yield from self._stop_requested(f"{name} failed to start")
            return
        if not process.role.restarts:
            process.phase = Phase.ENDED
            yield from self._stop_requested(f"{name} ended")
            return
        in_a_row = starting or now - process.ready_at < self._patience.stable
        process.failures = process.failures + 1 if in_a_row else 1
        yield from self._restart(process)

    def _restart(self, process: _Process) -> Iterator[Instruction]:
        name = process.role.name
        names = frozenset({name, *process.role.takes_down})
        # A set that this one includes, or is included in, becomes part of it.
        for cause, others in list(self._restarts.items()):
            if others & names:
                names |= self._restarts.pop(cause)
        self._restarts[name] = names
        for other in sorted(names - {name}):
            member = self._processes[other]
            if member.phase in (Phase.STARTING, Phase.READY):
                yield Say(other, f"stopping, because {name} ended")
                yield from self._signal(member, signal.SIGTERM, self._patience.terminate)
            elif member.phase is Phase.WAITING:
                member.phase = Phase.RESTARTING
        yield from self._schedule_restart(name)

    def _schedule_restart(self, cause: str) -> Iterator[Instruction]:
        members = [self._processes[name] for name in self._restarts[cause]]
        if any(member.phase is not Phase.RESTARTING for member in members):
            return
        failures = max(member.failures for member in members)
        for member in members:
            member.failures = failures
        doubled = self._patience.first_restart * 2 ** min(failures - 1, 20)
        seconds = min(self._patience.last_restart, doubled)
        yield Say(cause, f"restarting in {seconds:g} s")
        yield SetTimer(self._processes[cause].timer(TimerKind.RESTART), seconds)

    def _cause_of(self, name: str) -> str:
        return next(cause for cause, names in self._restarts.items() if name in names)

    # Timers

    def _timer(self, timer: Timer, now: float) -> Iterator[Instruction]:
        process = self._processes[timer.name]
        if timer.attempt != process.attempt:
            return
        match timer.kind:
            case TimerKind.START if process.phase is Phase.STARTING:
                yield from self._stalled(process, now)
            case TimerKind.STOP if process.alive:
                yield from self._escalate(process)
            case TimerKind.RESTART if timer.name in self._restarts:
                names = self._restarts.pop(timer.name)
                yield from self._start_all([n for n in self._processes if n in names], now)

    # Stopping

    def _stop_requested(self, cause: str | None) -> Iterator[Instruction]:
        processes = self._processes.values()
        draining = [each for each in processes if self._stops and each.alive and each.role.drains]
        self._stops += 1
        if cause is not None:
            self._exit_code = 1
            self._stops = max(self._stops, 2)
            yield Say("", f"stopping: {cause}")
        elif self._stops == 1:
            yield Say("", "stopping; once more to stop without waiting for requests")
        self._restarts.clear()
        for process in processes:
            if not process.alive:
                process.phase = Phase.ENDED
        for process in draining:
            yield from self._hurry(process)
        yield from self._advance_stop()

    def _advance_stop(self) -> Iterator[Instruction]:
        """Signal whoever is next; finish when nobody is left."""
        alive = [process for process in self._processes.values() if process.alive]
        if not alive:
            yield Finish(self._exit_code)
            return
        lowest = min(process.role.stop_rank for process in alive)
        for process in alive:
            if self._stops > 2:
                yield from self._kill(process)
            elif not process.signals and (self._stops == 2 or process.role.stop_rank == lowest):
                drains = process.role.drains and self._stops == 1
                seconds = self._patience.drain if drains else self._patience.terminate
                yield from self._signal(process, signal.SIGTERM, seconds)

    def _hurry(self, process: _Process) -> Iterator[Instruction]:
        """A process that drains takes a second SIGTERM as an order to stop now."""
        if len(process.signals) == 1:
            yield from self._signal(process, signal.SIGTERM, self._patience.terminate)

    def _kill(self, process: _Process) -> Iterator[Instruction]:
        if signal.SIGKILL not in process.signals:
            yield from self._signal(process, signal.SIGKILL, self._patience.kill)

    def _escalate(self, process: _Process) -> Iterator[Instruction]:
        name = process.role.name
        if signal.SIGKILL in process.signals:
            yield Say(name, "did not end after SIGKILL and is left behind")
            process.phase = Phase.ENDED
            yield from self._stop_requested(f"{name} cannot be stopped")
        elif process.role.drains and len(process.signals) == 1:
            yield Say(name, "requests are still in flight; stopping now")
            yield from self._hurry(process)
        else:
            yield Say(name, "did not end after SIGTERM; killing it")
            yield from self._kill(process)

    def _signal(
        self, process: _Process, sent: signal.Signals, seconds: float
    ) -> Iterator[Instruction]:
        # One that is killed for its silence has failed by itself: it was not told to stop.
        failed = sent is signal.SIGKILL and process.phase is not Phase.STOPPING and not self._stops
        if not failed:
            process.phase = Phase.STOPPING
        process.signals.append(sent)
        yield Send(process.role.name, sent)
        yield SetTimer(process.timer(TimerKind.STOP), seconds)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
