"""Runs a scheduler on its own thread and brings what it makes to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable

from omni_config.errors import OmniError
from omni_runtime.scheduler import OutboxMessage, Scheduler

MESSAGES_PER_PASS = 64
"""Outbox messages handled before the loop gets to breathe."""

OUTBOX_LIMIT = 64
"""Messages that may wait in an outbox. A scheduler that outruns the loop would otherwise fill
memory with rows before it could hear that their reader has no room."""


class SchedulerCrashed(OmniError):
    """A scheduler's thread ended by an exception: nothing of its stage can be trusted any more."""


class LoopOutbox:
    """An outbox drained on the event loop: one wake-up for however many messages have gathered."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, handle: Callable[[OutboxMessage], None]
    ) -> None:
        self._loop = loop
        self._handle = handle
        self._messages: deque[OutboxMessage] = deque()
        self._woken = False
        self._room = threading.Event()
        self._closed = False

    def put(self, message: OutboxMessage) -> None:
        """Append one message, waiting while the loop is behind; not for the loop's own thread."""
        while len(self._messages) >= OUTBOX_LIMIT and not self._closed:
            self._room.clear()
            if len(self._messages) >= OUTBOX_LIMIT and not self._closed:
                self._room.wait()
        self._messages.append(message)
        if not self._woken:
            self._woken = True
            _call_on(self._loop, self._drain)

    def close(self) -> None:
        """Take messages without a limit from now on: nobody drains them any more."""
        self._closed = True
        self._room.set()

    def __len__(self) -> int:
        return len(self._messages)

    def _drain(self) -> None:
        # Cleared before the first message is taken: whoever appends after that wakes the loop
        # again.
        self._woken = False
        for _ in range(MESSAGES_PER_PASS):
            if not self._messages:
                break
            self._handle(self._messages.popleft())
        self._room.set()
        if self._messages and not self._woken:
            self._woken = True
            self._loop.call_soon(self._drain)


class SchedulerThread:
    """The thread of one scheduler.

    Args:
        name: name of the thread, for debuggers and logs.
        handle: takes each outbox message, on the loop's thread.
    """

    def __init__(
        self, name: str, scheduler: Scheduler, handle: Callable[[OutboxMessage], None]
    ) -> None:
        self.scheduler = scheduler
        self._loop = asyncio.get_running_loop()
        self._outbox = LoopOutbox(self._loop, handle)
        self._ended: asyncio.Future[None] = self._loop.create_future()
        # A daemon, so that a step that never returns cannot keep the process alive.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def wait(self) -> None:
        """Return when the scheduler has stopped.

        Raises:
            SchedulerCrashed: its thread ended by an exception, chained as the cause.
        """
        await asyncio.shield(self._ended)

    def stop(self) -> None:
        """Ask the scheduler to stop; `wait` returns when it has."""
        self.scheduler.stop()
        self._outbox.close()

    def _run(self) -> None:
        try:
            self.scheduler.run(self._outbox)
        except BaseException as error:
            crash = SchedulerCrashed(f"{self._thread.name}: {type(error).__name__}: {error}")
            crash.__cause__ = error
            _call_on(self._loop, self._end, crash)
        else:
            _call_on(self._loop, self._end, None)
        finally:
            self.scheduler.inbox.close()

    def _end(self, crash: SchedulerCrashed | None) -> None:
        if self._ended.done():
            return
        if crash is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(crash)


def _call_on(
    loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object
) -> None:
    """Let a loop make a call; one that has closed has nobody left to hear it."""
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise
