"""The leader's side: answers every follower with the manifest and what its memory is reached by.

One daemon thread serves them all. Followers may come at any time, also again: one that died alone
is started again and attaches to the same weights.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from omni_runtime.logging import EventLogger
from omni_runtime.weight_share.connection import Connection, listen

logger = EventLogger(__name__)

PROTOCOL = 1
_HELLO_SECONDS = 10.0


class SharedMemory(Protocol):
    """Where published storages lie."""

    def places(self) -> list[dict[str, Any]]:
        """Return how one more follower reaches each storage, as plain data."""
        ...

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that a follower needs."""
        ...

    def close(self) -> None:
        """Let go of what is not the module's own."""
        ...


class Publication:
    """Weights on offer at one socket.

    Args:
        manifest: as `manifest.to_json` wrote it.
    """

    def __init__(
        self, path: Path, run_id: str, manifest: Mapping[str, Any], memory: SharedMemory
    ) -> None:
        self._path, self._run_id = path, run_id
        self._manifest, self._memory = manifest, memory
        self._followers: set[Connection] = set()
        self._changed = threading.Condition()
        self._listener = listen(path)
        self._wake, self._woken = socket.socketpair()
        self._serving = threading.Thread(
            target=self._serve, name=f"weights of {path.stem}", daemon=True
        )
        self._serving.start()

    def wait_unused(self, seconds: float) -> bool:
        """Wait until no follower is attached; return whether none is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._followers, max(0.0, seconds))

    def close(self) -> None:
        """Stop offering; whoever is attached sees the end. The socket's name is free afterwards."""
        self._wake.close()
        self._serving.join()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._woken:
                        self._end()
                        return
                    if key.fileobj is self._listener:
                        self._welcome(selector)
                    else:
                        self._farewell(selector, key.fileobj)

    def _welcome(self, selector: selectors.BaseSelector) -> None:
        connection = Connection(self._listener.accept()[0])
        connection.set_timeout(_HELLO_SECONDS)
        try:
            hello, surplus = connection.receive()
            for descriptor in surplus:
                os.close(descriptor)
            answer = self._answer(hello)
            connection.send(answer, () if "refused" in answer else self._memory.descriptors)
        except (OSError, EOFError, ValueError) as error:
            logger.failure("a follower left before it was attached", error)
            connection.close()
            return
        if "refused" in answer:
            logger.warning("a follower was refused", reason=answer["refused"])
            connection.close()
            return
        selector.register(connection, selectors.EVENT_READ)
        with self._changed:
            self._followers.add(connection)
        logger.info("a follower attached", pid=hello.get("pid"), stage=self._path.stem)

    def _answer(self, hello: Mapping[str, Any]) -> Mapping[str, Any]:
        if hello.get("protocol") != PROTOCOL:
            return _refused(f"it speaks protocol {PROTOCOL}, this process {hello.get('protocol')}")
        if hello.get("run_id") != self._run_id:
            other = hello.get("run_id")
            return _refused(f"it belongs to run '{self._run_id}', this process to '{other}'")
        try:
            return {"manifest": self._manifest, "places": self._memory.places()}
        except RuntimeError as error:  # torch's, of a GPU that gives no handles
            return _refused(f"its memory cannot be reached: {error}")

    def _farewell(self, selector: selectors.BaseSelector, gone: object) -> None:
        assert isinstance(gone, Connection)
        selector.unregister(gone)
        gone.close()
        with self._changed:
            self._followers.discard(gone)
            self._changed.notify_all()
        logger.info("a follower left", stage=self._path.stem)

    def _end(self) -> None:
        self._path.unlink(missing_ok=True)
        self._listener.close()
        for follower in self._followers:
            follower.close()
        self._woken.close()
        self._memory.close()


def _refused(reason: str) -> Mapping[str, Any]:
    return {"refused": reason}
