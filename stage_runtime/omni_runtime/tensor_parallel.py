"""Ranks of one stage that change state in the same pass.

Rank 0 does all outside I/O. Whatever it drains from its inbox before a step (requests, rows,
aborts, also those of an expired deadline) it sends to the other ranks over ZeroMQ, and every rank
applies the same list before the same step. So a scheduler under tensor parallelism decides by its
messages alone, never by a clock. A rank that fails takes the stage down: the others would wait for
it inside a collective for ever.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import zmq
from zmq.utils.monitor import recv_monitor_message

from omni_config.errors import OmniError
from omni_runtime.rank_messages import PassDecoder, PassEncoder
from omni_runtime.scheduler import Inbox, InboxMessage, OutboxMessage

_STOP = b"stop"
_JOIN_SECONDS = 600.0


class RankLost(OmniError):
    """Another rank of this stage is gone, so this one cannot go on."""


@dataclass(frozen=True, slots=True)
class RankSettings:
    """What rank 0 tells every rank before stages are built.

    Attributes:
        nccl_port: TCP port at which the ranks' process group meets.
    """

    nccl_port: int


class RankChannel:
    """Rank 0's end of the sockets to the other ranks.

    Args:
        addresses: gRPC-style target (`unix:/path` or `host:port`) of every other rank, rank 1
            first.
        settings: sent to every rank when it joins.

    Used by one thread at a time: the one that joins, then the scheduler's.
    """

    def __init__(self, addresses: Sequence[str], settings: RankSettings) -> None:
        self._context = zmq.Context()
        self._settings = settings
        self._encoder = PassEncoder()
        self._lost: RankLost | None = None
        self._on_lost: Callable[[], None] = lambda: None
        self._sockets = [self._connected(address) for address in addresses]

    def join(self, timeout_seconds: float = _JOIN_SECONDS) -> None:
        """Send the settings to every rank and return once all have answered.

        Raises:
            RankLost: one did not answer in time.
        """
        hello = json.dumps({"nccl_port": self._settings.nccl_port}).encode()
        for socket in self._sockets:
            socket.send(hello)
        self.wait_all("join", timeout_seconds)

    def wait_all(self, what: str, timeout_seconds: float = _JOIN_SECONDS) -> None:
        """Return once every rank has sent its word that it did `what`.

        Raises:
            RankLost: one did not in time.
        """
        for rank, socket in enumerate(self._sockets, start=1):
            if not socket.poll(int(timeout_seconds * 1000)):
                raise RankLost(f"rank {rank} did not {what} within {timeout_seconds:g} s")
            socket.recv()

    def send(self, messages: Sequence[InboxMessage]) -> None:
        """Send one pass to every rank.

        Raises:
            RankLost: a rank is gone.
        """
        if self._lost is not None:
            raise self._lost
        parts = self._encoder.encode(messages)
        for socket in self._sockets:
            socket.send_multipart(parts, copy=False)

    def watch(self, on_lost: Callable[[], None]) -> None:
        """Call `on_lost` from another thread as soon as a rank's connection ends."""
        self._on_lost = on_lost
        for rank, socket in enumerate(self._sockets, start=1):
            monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            thread = threading.Thread(target=self._watch, args=(rank, monitor), daemon=True)
            thread.start()

    def close(self) -> None:
        """Tell every rank to stop and close the sockets; the scheduler's thread has ended."""
        for socket in self._sockets:
            socket.disable_monitor()
            # A rank that is gone takes nothing, and must not keep this one.
            with suppress(zmq.Again):
                socket.send(_STOP, zmq.NOBLOCK)
            socket.close(linger=1000)
        self._context.term()

    def _connected(self, address: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.PAIR)
        socket.set_hwm(0)
        socket.connect(_zmq_address(address))
        return socket

    def _watch(self, rank: int, monitor: zmq.Socket[bytes]) -> None:
        # A context waits for each of its sockets, so this one must be closed in any case.
        with monitor:
            try:
                recv_monitor_message(monitor)
            except zmq.ContextTerminated:
                return
        self._lost = RankLost(f"rank {rank} is gone")
        self._on_lost()


class LeaderInbox(Inbox):
    """Inbox of rank 0: what is drained goes to the other ranks first."""

    def __init__(self, channel: RankChannel) -> None:
        super().__init__()
        self._channel = channel
        channel.watch(self.wake)

    def drain(self) -> list[InboxMessage]:
        """Return everything that has come, after sending it to every rank.

        Raises:
            RankLost: a rank is gone.
        """
        messages = super().drain()
        self._channel.send(messages)
        return messages

    def close(self) -> None:
        """Stop the other ranks."""
        self._channel.close()


class FollowerInbox(Inbox):
    """Inbox of another rank: each drain is the next pass of rank 0.

    Args:
        address: where this rank listens, as `RankChannel` dials it.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.set_hwm(0)
        self._socket.bind(_zmq_address(address))
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._decoder = PassDecoder()
        self._stop: Callable[[], None] = lambda: None

    def join(self) -> RankSettings:
        """Wait for rank 0 and return what it says.

        Raises:
            RankLost: rank 0 is gone.
        """
        settings = json.loads(self._receive()[0])
        self._socket.send(b"joined")
        return RankSettings(settings["nccl_port"])

    def report(self, what: str) -> None:
        """Send rank 0 word of something it waits for with `RankChannel.wait_all`."""
        self._socket.send(what.encode())

    def on_stop(self, stop: Callable[[], None]) -> None:
        """Name what is called, on the draining thread, when rank 0 stops."""
        self._stop = stop

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Return at once: `drain` is where this rank waits."""
        return True

    def drain(self) -> list[InboxMessage]:
        """Wait for the next pass of rank 0 and return its messages.

        Raises:
            RankLost: rank 0 is gone.
        """
        parts = self._receive()
        if parts == [_STOP]:
            self._stop()
            return []
        return self._decoder.decode(parts)

    def close(self) -> None:
        """Close the socket."""
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)
        self._context.term()

    def _receive(self) -> list[bytes]:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        ready = dict(poller.poll())
        # What rank 0 said before it left still counts, so the socket comes first.
        if self._socket not in ready:
            raise RankLost("rank 0 is gone")
        return self._socket.recv_multipart()


class NoOutbox:
    """Outbox of every rank but 0: what it makes is what rank 0 makes."""

    def put(self, message: OutboxMessage) -> None:
        """Drop a message."""


def _zmq_address(target: str) -> str:
    path = target.removeprefix("unix:")
    return f"ipc://{path}" if path != target else f"tcp://{target.removeprefix('dns:///')}"
