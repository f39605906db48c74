"""When requests of a stage expire: at their deadline, or when their upstream stages fall silent."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from omni_runtime.stage_request import StageRequest
from omni_wire.errors import DeadlineExceeded, ServiceError, StageInputTimeout
from omni_wire.identity import RequestKey


class DueTimes:
    """A heap of moments, looked at again when they come: input moves a request's own moment on.

    Args:
        live: the requests of the stage; entries of others are dropped as they are met.
        input_timeout_seconds: how long a request may wait for input that is still to come.
    """

    def __init__(
        self, live: Mapping[RequestKey, StageRequest], input_timeout_seconds: float
    ) -> None:
        self._live = live
        self._timeout = input_timeout_seconds
        self._heap: list[tuple[float, RequestKey]] = []

    def watch(self, request: StageRequest, now: float) -> None:
        """Begin to watch a new request."""
        if len(self._heap) > 4 * len(self._live) + 64:
            # Entries of ended requests lie below the top until their moment comes.
            self._heap = [due for due in self._heap if due[1] in self._live]
            heapq.heapify(self._heap)
        if request.deadline is not None:
            heapq.heappush(self._heap, (request.deadline, request.key))
        heapq.heappush(self._heap, (now + self._timeout, request.key))

    def next(self) -> float | None:
        """Return when `expired` has something to look at (monotonic seconds), or None."""
        while self._heap and self._heap[0][1] not in self._live:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def expired(self, now: float) -> Iterator[tuple[RequestKey, ServiceError]]:
        """Yield the requests whose time is over and why; the caller ends each before the next."""
        while (due := self.next()) is not None and due <= now:
            _, key = heapq.heappop(self._heap)
            request = self._live[key]
            waits = request.awaits_input
            silent_at = (request.input_at if waits else now) + self._timeout
            if request.deadline is not None and request.deadline <= now:
                yield key, DeadlineExceeded("the deadline of the request passed")
            elif silent_at <= now:
                yield key, StageInputTimeout(f"no input for {self._timeout:g} s")
            else:
                heapq.heappush(self._heap, (silent_at, key))
