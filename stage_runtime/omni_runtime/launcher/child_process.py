"""One child process: started, read line by line, signalled, reaped, without polling or threads.

A child leads a session of its own, so that Ctrl-C at the terminal reaches only the launcher, which
decides in which order children stop. Whatever a child leaves behind is killed with its group before
its process id is given back, while the id still names that group and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO

from omni_runtime.launcher.log_lines import LineSplitter
from omni_runtime.process_end import process_ended
from omni_wire.supervision import NOTIFY_FD_VARIABLE, SUPERVISOR_PID_VARIABLE

_READ_BYTES = 65536
_OUTPUT_GRACE_SECONDS = 1.0
"""How long output is awaited after the exit; a stray descendant may keep the pipe open."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to execute.

    Attributes:
        environment: variables on top of the launcher's own.
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that the child wrote to its standard output or standard error."""

    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """What the child said through `omni_wire.supervision`."""

    key: str
    value: str


Deliver = Callable[[LogLine | Notice], Awaitable[None]]


class ChildProcess:
    """A started child.

    Raises:
        OSError: the program cannot be executed.
    """

    def __init__(self, command: Command) -> None:
        output, output_end = os.pipe()
        notices, notices_end = os.pipe()
        os.set_blocking(notices_end, False)
        variables = {
            NOTIFY_FD_VARIABLE: str(notices_end),
            SUPERVISOR_PID_VARIABLE: str(os.getpid()),
        }
        try:
            self._process = subprocess.Popen(
                command.argv,
                stdin=subprocess.DEVNULL,
                stdout=output_end,
                stderr=output_end,
                env={**os.environ, **command.environment, **variables},
                pass_fds=(notices_end,),
                start_new_session=True,
            )
        except OSError:
            os.close(output)
            os.close(notices)
            raise
        finally:
            os.close(output_end)
            os.close(notices_end)
        # `follow` closes both, when it hands them to the event loop.
        self._output, self._notices = os.fdopen(output, "rb"), os.fdopen(notices, "rb")

    @property
    def pid(self) -> int:
        """Process id; the child's until `follow` returned."""
        return self._process.pid

    def send(self, sent: signal.Signals) -> None:
        """Send a signal; SIGKILL goes to the child's descendants too. Nothing once it ended."""
        if self._process.returncode is not None:
            return
        if sent is signal.SIGKILL:
            os.killpg(self.pid, sent)
        else:
            os.kill(self.pid, sent)

    async def follow(self, deliver: Deliver) -> int:
        """Deliver what the child writes until it ended; return its exit status or, negative, the
        number of the signal that killed it."""
        async with asyncio.TaskGroup() as tasks:
            reading = [
                tasks.create_task(_read(self._output, lambda line: deliver(LogLine(line)))),
                tasks.create_task(_read(self._notices, lambda line: deliver(_notice(line)))),
            ]
            await process_ended(self.pid)
            with suppress(ProcessLookupError):
                # Not reaped yet, so the id cannot name any other group.
                os.killpg(self.pid, signal.SIGKILL)
            code = self._process.wait()
            await asyncio.wait(reading, timeout=_OUTPUT_GRACE_SECONDS)
            for task in reading:
                task.cancel()
        return code


async def _read(pipe: BinaryIO, deliver: Callable[[str], Awaitable[None]]) -> None:
    splitter = LineSplitter()
    async for data in _chunks(pipe):
        for line in splitter.feed(data):
            await deliver(line)
    for line in splitter.close():
        await deliver(line)


def _notice(line: str) -> Notice:
    key, _, value = line.partition("=")
    return Notice(key, value)


async def _chunks(pipe: BinaryIO) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        while data := await reader.read(_READ_BYTES):
            yield data
    finally:
        transport.close()
