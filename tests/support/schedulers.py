"""Driving a scheduler by hand, one pass at a time, on the test's own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from omni_runtime.scheduler import InboxMessage, OutboxMessage, Scheduler
from tests.support.patience import PATIENT_SECONDS

Kind = TypeVar("Kind", bound=OutboxMessage)


class NotingOutbox:
    """An outbox that keeps what was put, and lets a test wait for more."""

    def __init__(self) -> None:
        self.messages: list[OutboxMessage] = []
        self._changed = threading.Condition()

    def put(self, message: OutboxMessage) -> None:
        """Keep a message."""
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Return what was put of one kind, in order."""
        return [message for message in self.messages if isinstance(message, kind)]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds that only a put can change; fail in the end."""
        with self._changed:
            assert self._changed.wait_for(condition, timeout=PATIENT_SECONDS), (
                f"got only {self.messages}"
            )


class Steppable(Scheduler, Protocol):
    """A scheduler that can be driven by hand."""

    @property
    def can_step(self) -> bool: ...

    def advance(self, outbox: NotingOutbox) -> bool: ...


class DrivenScheduler:
    """A scheduler, its outbox, and no thread."""

    def __init__(self, scheduler: Steppable) -> None:
        self.scheduler = scheduler
        self.outbox = NotingOutbox()

    def put(self, *messages: InboxMessage) -> None:
        """Put messages and let the scheduler take them and run one step."""
        for message in messages:
            self.scheduler.inbox.put(message)
        self.scheduler.advance(self.outbox)

    def finish(self) -> None:
        """Let the scheduler run until it has nothing to do."""
        while self.scheduler.can_step or len(self.scheduler.inbox):
            self.scheduler.advance(self.outbox)
