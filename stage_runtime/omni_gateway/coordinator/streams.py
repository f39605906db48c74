"""Output that clients have not read yet, with bounded memory.

Each request has its own buffer. Credit for a chunk returns to its sender when the reader takes the
chunk, so a slow reader holds back its own request and no other. All buffers together stay under one
limit: when it would be passed, whole streams are given up, that of the longest idle reader first;
single chunks are never dropped.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from omni_wire.identity import RequestKey
from omni_wire.messages import Tree
from omni_wire.tensor import ArrayLike

Release = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Output:
    """One chunk of a terminal stage.

    Attributes:
        stage: logical stage that made it.
        sender: incarnation of the process that sent it.
        modality: `text`, `audio`, or what the pipeline calls it.
        chunk_id: dense from 0 for this request and stage.
        columns: one row of every column of the step's frame, without the leading dimension.
        meta: small tree sent beside the columns.
        size_bytes: bytes it counts for.
        release: returns the sender's credit; called exactly once, by the Coordinator.
    """

    stage: str
    sender: int
    modality: str
    chunk_id: int
    columns: Mapping[str, ArrayLike]
    meta: Tree
    size_bytes: int
    release: Release = field(compare=False, repr=False)


@dataclass(slots=True)
class OutputBuffer:
    """Unread output of one request, in order of arrival.

    Attributes:
        result_bytes: bytes of results kept until the reader leaves.
        delivered: whether the reader ever took anything.
    """

    result_bytes: int = 0
    delivered: bool = False
    _queue: deque[Output] = field(default_factory=deque)
    _queued_bytes: int = 0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def size_bytes(self) -> int:
        """Bytes this request holds in memory."""
        return self._queued_bytes + self.result_bytes

    def put(self, output: Output) -> None:
        """Append a chunk."""
        self._queue.append(output)
        self._queued_bytes += output.size_bytes

    def take(self) -> Output:
        """Remove the oldest chunk.

        Raises:
            IndexError: the buffer is empty.
        """
        output = self._queue.popleft()
        self._queued_bytes -= output.size_bytes
        self.delivered = True
        return output

    def clear(self) -> list[Output]:
        """Remove and return everything unread."""
        unread = list(self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        return unread


@dataclass(slots=True)
class Backlog:
    """All buffers of a Coordinator under one limit.

    Attributes:
        limit_bytes: null for no limit.
        size_bytes: bytes in all buffers.
    """

    limit_bytes: int | None
    size_bytes: int = 0
    _held: OrderedDict[RequestKey, int] = field(default_factory=OrderedDict)
    """Bytes of each non-empty buffer, the longest idle reader first."""

    def __len__(self) -> int:
        return len(self._held)

    @property
    def exceeded(self) -> bool:
        """Whether a stream has to be given up."""
        return self.limit_bytes is not None and self.size_bytes > self.limit_bytes

    def longest_idle(self) -> RequestKey:
        """Return the request whose reader left output unread for longest.

        Raises:
            StopIteration: nothing is buffered.
        """
        return next(iter(self._held))

    def update(self, key: RequestKey, size_bytes: int, *, read: bool = False) -> None:
        """Note how much a request holds now, and whether its reader just took something."""
        self.size_bytes += size_bytes - self._held.get(key, 0)
        if not size_bytes:
            self._held.pop(key, None)
            return
        self._held[key] = size_bytes
        if read:
            self._held.move_to_end(key)
