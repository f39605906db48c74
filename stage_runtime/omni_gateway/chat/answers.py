"""Several answers to one request, run side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from omni_gateway.chat.answer import answer_events
from omni_gateway.chat.events import ChatEvent
from omni_gateway.chat.request import ChatRequest
from omni_gateway.coordinator import Coordinator, RequestHandle

QUEUED_EVENTS = 16
"""Events of one answer that may wait for their reader; the stages wait beyond that."""


@dataclass(frozen=True, slots=True)
class ChoiceEvent:
    """One event, and the answer it belongs to."""

    choice: int
    event: ChatEvent


class Chat:
    """A submitted chat request.

    Attributes:
        request_id: name of the request; of the first answer when there are several.
    """

    def __init__(self, handles: list[RequestHandle], sample_rate: int) -> None:
        self._handles = handles
        self._sample_rate = sample_rate
        self.request_id = handles[0].request_id

    async def events(self) -> AsyncIterator[ChoiceEvent]:
        """Yield the events of every answer as they arise.

        Raises:
            ServiceError: an answer failed; the others are aborted.
        """
        if len(self._handles) == 1:
            async for event in answer_events(self._handles[0], self._sample_rate):
                yield ChoiceEvent(0, event)
            return
        async for found in self._interleaved():
            yield found

    async def _interleaved(self) -> AsyncIterator[ChoiceEvent]:
        queue: asyncio.Queue[ChoiceEvent | BaseException | None] = asyncio.Queue(
            QUEUED_EVENTS * len(self._handles)
        )
        tasks = [
            asyncio.create_task(self._feed(index, handle, queue))
            for index, handle in enumerate(self._handles)
        ]
        try:
            left = len(tasks)
            while left:
                found = await queue.get()
                if isinstance(found, BaseException):
                    raise found
                if found is None:
                    left -= 1
                else:
                    yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _feed(
        self,
        choice: int,
        handle: RequestHandle,
        queue: asyncio.Queue[ChoiceEvent | BaseException | None],
    ) -> None:
        try:
            async for event in answer_events(handle, self._sample_rate):
                await queue.put(ChoiceEvent(choice, event))
        except Exception as error:  # the reader raises it: nothing else awaits this task
            await queue.put(error)
            return
        await queue.put(None)


@asynccontextmanager
async def submitted(
    coordinator: Coordinator,
    request: ChatRequest,
    trace_context: dict[str, str],
    sample_rate: int,
) -> AsyncIterator[Chat]:
    """Submit a chat request for as long as the context lasts; leaving it aborts what is left.

    Raises:
        ServiceError: the gateway takes no request now, or this one's id is in use.
    """
    handles: list[RequestHandle] = []
    try:
        for index in range(request.choices):
            one = request.choice(index)
            handles.append(
                coordinator.submit(
                    one.view(trace_context),
                    request_id=one.request_id or None,
                    timeout_seconds=one.timeout_seconds,
                )
            )
        yield Chat(handles, sample_rate)
    finally:
        for handle in handles:
            handle.leave()
