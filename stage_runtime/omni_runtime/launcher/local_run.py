"""Carries out what the supervisor decides: the processes, the timers and the screen of one run."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager

from omni_config.errors import OmniError
from omni_runtime.launcher.cards import Cards, NoSharedCards
from omni_runtime.launcher.child_process import ChildProcess, LogLine, Notice
from omni_runtime.launcher.display import Display, Progress
from omni_runtime.launcher.local_processes import LocalProcess
from omni_runtime.launcher.log_lines import LastLines
from omni_runtime.launcher.roles import Patience
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
)
from omni_runtime.launcher.supervisor import Supervisor
from omni_wire import supervision

_MAX_EVENTS = 1000
_NOT_STARTED = 127
_LOCAL_ONLY = "unix:"
"""Begins the address on which processes of this machine meet; nothing for users."""
SILENT_SECONDS = 20.0
"""After which a process that said it is alive is taken for stuck; it says so every few seconds."""
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class LocalRun:
    """One run of a pipeline on this machine, from the first process to the last.

    Args:
        processes: all processes, in the order in which they are shown.
        cards: GPUs shared through MPS, already leased.
    """

    def __init__(
        self,
        processes: Sequence[LocalProcess],
        display: Display,
        patience: Patience | None = None,
        cards: Cards | None = None,
    ) -> None:
        self._processes = {process.name: _Slot(process) for process in processes}
        self._display = display
        self._cards = cards or NoSharedCards()
        self._supervisor = Supervisor([each.role for each in processes], patience or Patience())
        self._events: asyncio.Queue[Event] = asyncio.Queue(maxsize=_MAX_EVENTS)
        self._timers: dict[Timer, float] = {}
        self._addresses: list[str] = []
        self._began = time.monotonic()
        self._exit_code: int | None = None
        self._stop_asked = False
        self._background: set[asyncio.Task[None]] = set()

    @property
    def phases(self) -> Mapping[str, Phase]:
        """Where each process is."""
        return self._supervisor.phases

    @property
    def pids(self) -> Mapping[str, int]:
        """Process id of each process that runs."""
        found = ((name, slot.child) for name, slot in self._processes.items())
        return {name: child.pid for name, child in found if child is not None}

    def request_stop(self) -> None:
        """Ask for a stop, as a signal does: again to hurry."""
        self._stop_asked = True
        self._events.put_nowait(StopRequested())

    def request_drain(self) -> None:
        """Ask for a stop unless one is under way: asking twice does not hurry it."""
        if not self._stop_asked:
            self.request_stop()

    def signal_ready(self, number: signal.Signals) -> None:
        """Send a signal to every process that is ready: it knows what the signal means."""
        for name, phase in self.phases.items():
            if phase is Phase.READY:
                self._processes[name].send(number)

    async def run(self) -> int:
        """Start everything, keep it running until it is told to stop, return the exit code.

        SIGINT, SIGTERM and SIGHUP ask for a stop.
        """
        self._display.begin(list(self._processes))
        try:
            with self._stop_signals():
                async with asyncio.TaskGroup() as self._tasks:
                    self._spawn(self._watch_cards())
                    self._handle(Begun())
                    while self._exit_code is None:
                        self._handle(await self._next_event())
                    # Left are checks of processes that have ended, and whoever cannot be killed.
                    for task in self._background:
                        task.cancel()
        finally:
            # Reached with living processes only when the launcher itself fails.
            for slot in self._processes.values():
                slot.send(signal.SIGKILL)
            self._display.close()
        return self._exit_code

    @contextmanager
    def _stop_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self.request_stop)
        try:
            yield
        finally:
            for number in _STOP_SIGNALS:
                loop.remove_signal_handler(number)

    async def _next_event(self) -> Event:
        due = min(self._timers, key=self._timers.__getitem__, default=None)
        deadline = None if due is None else self._timers[due]
        try:
            async with asyncio.timeout_at(deadline):
                return await self._events.get()
        except TimeoutError:
            assert due is not None
            del self._timers[due]
            return TimerFired(due)

    def _handle(self, event: Event) -> None:
        for instruction in self._supervisor.handle(event, asyncio.get_running_loop().time()):
            self._carry_out(instruction)
        for name, phase in self._supervisor.phases.items():
            self._display.phase(name, phase, self._processes[name].status)

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Start(name):
                self._start(self._processes[name])
            case Send(name, sent):
                self._send(self._processes[name], sent)
            case SetTimer(timer, seconds):
                self._timers[timer] = asyncio.get_running_loop().time() + seconds
            case Say(name, text):
                self._display.say(name, text)
            case ShowFailure(name, reason):
                self._display.failure(name, reason, self._processes[name].last_lines.lines)
            case AllReady():
                self._display.ready(self._addresses, time.monotonic() - self._began)
            case Finish(code):
                self._exit_code = code

    def _start(self, slot: _Slot) -> None:
        slot.last_lines.clear()
        slot.status = ""
        try:
            slot.child = ChildProcess(slot.process.command)
        except OSError as error:
            slot.last_lines.add(f"{slot.process.command.argv[0]} cannot be executed: {error}")
            self._events.put_nowait(Exited(slot.process.name, _NOT_STARTED))
            return
        self._spawn(self._follow(slot, slot.child))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._tasks.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _send(self, slot: _Slot, sent: signal.Signals) -> None:
        if sent is signal.SIGKILL and self._cards.is_client(slot.process.name):
            self._spawn(self._detach_and_kill(slot))
            return
        slot.send(sent)

    async def _follow(self, slot: _Slot, child: ChildProcess) -> None:
        name = slot.process.name

        async def deliver(message: LogLine | Notice) -> None:
            if isinstance(message, Notice):
                await self._noticed(slot, child, message)
                return
            slot.last_lines.add(message.text)
            self._display.log(name, message.text)
            if slot.progress.due():
                await self._events.put(MadeProgress(name))

        code = await child.follow(deliver)
        slot.child = None
        slot.expect_nothing()
        await self._events.put(Exited(name, code))

    async def _noticed(self, slot: _Slot, child: ChildProcess, notice: Notice) -> None:
        name = slot.process.name
        match notice.key:
            case supervision.READY if self._cards.is_client(name):
                slot.status = "attaching to its GPU"
                self._spawn(self._check_attached(slot, child))
            case supervision.READY:
                slot.status = ""
                await self._events.put(BecameReady(name))
            case supervision.STATUS:
                slot.status = notice.value
                await self._events.put(MadeProgress(name))
            case supervision.STUCK:
                await self._events.put(GotStuck(name))
            case supervision.ALIVE if notice.value == "1":
                self._expect_again(slot, child)
            case supervision.ALIVE:
                slot.expect_nothing()
            case supervision.ADDRESS if not notice.value.startswith(_LOCAL_ONLY):
                self._addresses.append(notice.value)
                self._display.say(name, f"listens on {notice.value}")

    def _expect_again(self, slot: _Slot, child: ChildProcess) -> None:
        """Take a process for stuck unless it soon says again that it is alive."""

        def silent() -> None:
            if slot.child is child:
                self._events.put_nowait(GotStuck(slot.process.name))

        slot.expect_nothing()
        slot.silence = asyncio.get_running_loop().call_later(SILENT_SECONDS, silent)

    async def _check_attached(self, slot: _Slot, child: ChildProcess) -> None:
        try:
            await self._cards.check_attached(slot.process.name)
        except OmniError as error:
            if slot.child is child:
                await self._events.put(StopRequested(str(error)))
            return
        if slot.child is child:
            slot.status = ""
            await self._events.put(BecameReady(slot.process.name))

    async def _detach_and_kill(self, slot: _Slot) -> None:
        try:
            await self._cards.detach(slot.process.name)
        except OmniError as error:
            self._display.say(slot.process.name, f"not detached before it is killed: {error}")
        slot.send(signal.SIGKILL)

    async def _watch_cards(self) -> None:
        try:
            await self._cards.watch()
        except OmniError as error:
            await self._events.put(StopRequested(str(error)))


class _Slot:
    """One process of the run, through all its attempts."""

    def __init__(self, process: LocalProcess) -> None:
        self.process = process
        self.child: ChildProcess | None = None
        self.last_lines = LastLines()
        self.progress = Progress()
        self.status = ""
        self.silence: asyncio.TimerHandle | None = None

    def expect_nothing(self) -> None:
        """Let the process be silent."""
        if self.silence is not None:
            self.silence.cancel()

    def send(self, sent: signal.Signals) -> None:
        """Send a signal to the child if there is one."""
        if self.child is not None:
            self.child.send(sent)
