"""Messages between leader and follower: JSON of stated length over a Unix socket, and descriptors.

Nothing here is ever unpickled: the peer is another process of the same user, and what it sends is
still data.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from omni_config.planning.weight_share import TIMEOUT_VARIABLE
from omni_runtime.weight_share.errors import LeaderAbsent, LeaderLost, UnsafeStore
from omni_runtime.weight_share.manifest import decode, encode

_LENGTH = struct.Struct("!Q")
_MAX_MESSAGE_BYTES = 256 << 20
_MAX_DESCRIPTORS = 4
_LOOK_AGAIN_SECONDS = 0.1
_PRIVATE_MODE = 0o700


class Connection:
    """One end of a connection that both sides hold for as long as the weights are shared."""

    def __init__(self, made: socket.socket) -> None:
        self._socket = made
        self.closed_here = False

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._socket.fileno()

    def send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send a message; descriptors travel with its length.

        Raises:
            OSError: the other side is gone.
        """
        data = encode(message)
        socket.send_fds(self._socket, [_LENGTH.pack(len(data))], descriptors)
        self._socket.sendall(data)

    def receive(self) -> tuple[Mapping[str, Any], list[int]]:
        """Return the next message and its descriptors, which are the caller's to close.

        Raises:
            OSError: the other side is gone, or does not answer in time.
            EOFError: it ended in the middle of a message.
        ValueError: what came is no message.
        """
        head, descriptors, _, _ = socket.recv_fds(self._socket, _LENGTH.size, _MAX_DESCRIPTORS)
        try:
            (length,) = _LENGTH.unpack(head + self._read(_LENGTH.size - len(head)))
            if length > _MAX_MESSAGE_BYTES:
                raise EOFError(f"a message of {length} bytes")
            return decode(self._read(length)), descriptors
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise

    def wait_closed(self) -> None:
        """Return when the other side has closed, or has ended."""
        with suppress(OSError):
            self._socket.settimeout(None)
            while self._socket.recv(4096):
                pass

    def set_timeout(self, seconds: float | None) -> None:
        """Bound every send and receive."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Close this side; the other one sees it."""
        self.closed_here = True
        # Wakes a thread that waits for the other side's end.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(min(count - len(parts), 1 << 20))
            if not part:
                raise EOFError("the other side ended in the middle of a message")
            parts += part
        return bytes(parts)


def listen(path: Path) -> socket.socket:
    """Listen where followers look, in a directory that is made private.

    Raises:
        UnsafeStore: the directory is another user's or open to others.
    """
    path.parent.mkdir(mode=_PRIVATE_MODE, parents=True, exist_ok=True)
    # A leader that ended left its socket behind; nobody listens there any more.
    path.unlink(missing_ok=True)
    with _private_directory(path.parent) as directory:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"{directory}/{path.name}")
    listener.listen()
    return listener


def connect(path: Path, seconds: float) -> Connection:
    """Wait for the leader and connect to it.

    Raises:
        LeaderAbsent: it did not listen in time.
        UnsafeStore: the directory is another user's or open to others.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            with _private_directory(path.parent) as directory:
                return Connection(_connected(f"{directory}/{path.name}"))
        except (FileNotFoundError, ConnectionRefusedError) as error:
            if time.monotonic() >= until:
                raise LeaderAbsent(
                    f"no leader offers weights at {path} after {seconds:g} s; see its log, or "
                    f"raise {TIMEOUT_VARIABLE}"
                ) from error
        # The leader may be loading for minutes, and may come back under the same name.
        time.sleep(min(_LOOK_AGAIN_SECONDS, seconds))


def ask(connection: Connection, question: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[int]]:
    """Send a message and return the answer with its descriptors.

    Raises:
        LeaderLost: the leader ended or refused.
    """
    try:
        connection.send(question)
        answer, descriptors = connection.receive()
    except (OSError, EOFError, ValueError) as error:
        raise LeaderLost("the leader ended while this process attached to its weights") from error
    if "refused" in answer:
        raise LeaderLost(f"the leader refused: {answer['refused']}")
    return answer, descriptors


def _connected(address: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.connect(address)
    except OSError:
        made.close()
        raise
    return made


@contextmanager
def _private_directory(directory: Path) -> Iterator[str]:
    """Yield a short name of a directory that nobody but this user can enter.

    Socket paths are limited to about a hundred bytes; the name of a descriptor is never longer.

    Raises:
        UnsafeStore: it is a link, another user's, or open to others.
        FileNotFoundError: it is not there.
    """
    try:
        descriptor = os.open(directory, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError as error:
        raise UnsafeStore(f"{directory} is no directory") from error
    try:
        found = os.fstat(descriptor)
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid != os.geteuid() or mode & 0o077:
            raise UnsafeStore(
                f"{directory} must be a directory that only its owner can enter (mode 0700), and "
                f"is mode {mode:04o} of user {found.st_uid}"
            )
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
