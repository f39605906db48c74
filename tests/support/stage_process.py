"""One stage in a process of its own, spoken to by its inbox and outbox.

SGLang keeps its configuration per process, so a test that needs an engine cannot host it itself.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from omni_runtime.scheduler import (
    Aborted,
    InboxMessage,
    OutboxMessage,
    RequestError,
    Result,
)
from omni_wire.identity import RequestKey

SILENCE_SECONDS = 250.0
"""A stage that says nothing for this long has failed the test; a busy machine starts one slowly."""

Ended = Result | RequestError | Aborted


class StageProcess:
    """A stage built by a factory in a child process.

    Args:
        factory: import path of the factory.
        kwargs: its arguments.
        environment: set in the child before anything is imported.
    """

    def __init__(
        self,
        factory: str,
        kwargs: Mapping[str, object],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, child = spawn.Pipe()
        self._process = spawn.Process(
            target=_child, args=(child, factory, dict(kwargs), dict(environment or {})), daemon=True
        )
        self._process.start()
        child.close()
        self._receive("ready")

    def put(self, *messages: InboxMessage) -> None:
        """Put messages into the inbox, in one go."""
        self._pipe.send(("put", messages))

    def get(self) -> OutboxMessage:
        """Return the next message of the outbox."""
        message: OutboxMessage = self._receive("out")
        return message

    def until_ended(self, keys: Iterable[RequestKey]) -> list[OutboxMessage]:
        """Return everything that comes until every request has ended."""
        left, seen = set(keys), list[OutboxMessage]()
        while left:
            message = self.get()
            seen.append(message)
            if isinstance(message, Ended):
                left.discard(message.key)
        return seen

    def ask(self, question: Callable[[Any], object]) -> Any:
        """Return what an importable function says of the scheduler, between two steps at best."""
        self._pipe.send(("ask", question))
        return self._receive("answer")

    def close(self) -> None:
        """Stop the scheduler and the process."""
        if self._process.is_alive():
            self._pipe.send(("stop", None))
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _receive(self, wanted: str) -> Any:
        pending = self._pending.setdefault(wanted, [])
        while not pending:
            if not self._pipe.poll(SILENCE_SECONDS):
                raise TimeoutError(f"the stage did not say '{wanted}'")
            kind, content = self._pipe.recv()
            if kind == "failed":
                raise AssertionError(f"the stage failed:\n{content}")
            self._pending.setdefault(kind, []).append(content)
        return pending.pop(0)

    @property
    def _pending(self) -> dict[str, list[Any]]:
        pending: dict[str, list[Any]] = self.__dict__.setdefault("_by_kind", {})
        return pending


class _PipeOutbox:
    def __init__(self, send: Callable[[str, object], None]) -> None:
        self._send = send

    def put(self, message: OutboxMessage) -> None:
        self._send("out", message)


def _child(
    pipe: Connection, factory: str, kwargs: dict[str, object], environment: dict[str, str]
) -> None:
    os.environ |= environment
    lock = threading.Lock()

    def send(kind: str, content: object) -> None:
        with lock:
            pipe.send((kind, content))

    try:
        _serve(pipe, send, factory, kwargs)
    except BaseException:
        send("failed", traceback.format_exc())


def _serve(
    pipe: Connection, send: Callable[[str, object], None], factory: str, kwargs: dict[str, object]
) -> None:
    from omni_runtime.stage_wiring import load_hook

    scheduler: Any = load_hook(factory)(**kwargs)

    def run() -> None:
        try:
            scheduler.run(_PipeOutbox(send))
        except BaseException:
            send("failed", traceback.format_exc())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    send("ready", None)
    while True:
        kind, content = pipe.recv()
        match kind:
            case "put":
                _put_in_one_go(scheduler.inbox, content)
            case "ask":
                send("answer", content(scheduler))
            case _:
                scheduler.stop()
                thread.join(20)
                # Unwinding what SGLang and torch hold takes seconds and proves nothing.
                os._exit(0)


def _put_in_one_go(inbox: Any, messages: Iterable[InboxMessage]) -> None:
    """Put messages so that the scheduler's thread finds all of them or none: it does not get its
    turn in between, however long a busy machine keeps this thread waiting."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SILENCE_SECONDS)
    try:
        for message in messages:
            inbox.put(message)
    finally:
        sys.setswitchinterval(usual)
