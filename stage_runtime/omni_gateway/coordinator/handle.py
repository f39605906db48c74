"""The reader's end of a request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from omni_gateway.coordinator.records import Phase, RequestRecord
from omni_gateway.coordinator.streams import Output
from omni_wire.errors import RequestAborted
from omni_wire.identity import RequestKey
from omni_wire.messages import Tree

if TYPE_CHECKING:
    from omni_gateway.coordinator.coordinator import Coordinator


class RequestHandle:
    """One request as its client sees it; for one reader at a time.

    Iterating yields the chunks of all terminal stages in order of arrival and ends when every
    expected terminal has completed. Reading is what returns credit: while nobody reads, only this
    request's stages wait. Leaving the context aborts the request if it has not finished.
    """

    def __init__(self, coordinator: Coordinator, record: RequestRecord) -> None:
        self._coordinator = coordinator
        self._record = record
        self._waiter: asyncio.Future[None] | None = None
        self._left = False

    @property
    def key(self) -> RequestKey:
        """Identity of the request in the stages; a resubmission changes its epoch."""
        return self._record.key

    @property
    def request_id(self) -> str:
        """Name of the request."""
        return self._record.request_id

    @property
    def phase(self) -> Phase:
        """Where the request stands."""
        return self._record.phase

    @property
    def admitted(self) -> float:
        """When it was admitted, in Unix seconds."""
        return time.time() - (time.monotonic() - self._record.submitted_at)

    @property
    def expected(self) -> tuple[str, ...]:
        """The terminal stages that complete the request."""
        return self._record.expected

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Output:
        """Return the next chunk.

        Raises:
            StopAsyncIteration: the request completed and everything was read.
            ServiceError: it failed, and what had arrived before was read; or it was aborted.
        """
        while not self._record.buffer:
            if self._left:
                raise RequestAborted("the request was left")
            if self._record.error is not None:
                raise self._record.error
            if self._record.phase.finished:
                raise StopAsyncIteration
            await self._readable()
        return self._coordinator.take(self._record)

    async def result(self) -> Tree:
        """Wait for the end, discarding chunks that were not read, and return the result.

        Returns:
            The result of the only expected terminal, or the results by stage.

        Raises:
            ServiceError: the request failed or was aborted.
        """
        async for _ in self:
            pass
        return self._record.result

    async def results(self) -> Mapping[str, Tree]:
        """Like `result`, but by stage also where only one terminal is expected."""
        result = await self.result()
        if len(self.expected) == 1:
            return {self.expected[0]: result}
        assert isinstance(result, Mapping), "several terminals give a result by stage"
        return result

    def leave(self) -> None:
        """Stop reading; a request that has not finished is aborted. Leaving twice is leaving."""
        if self._left:
            return
        self._left = True
        self.wake()
        self._coordinator.leave(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()

    def wake(self) -> None:
        """Let the reader look again; the Coordinator calls it when something arrived."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _readable(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
