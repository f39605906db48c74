"""Several answers to one request, run side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from omni_gateway.chat.answer import answer_events
from omni_gateway.chat.events import ChatEvent, Finished
from omni_gateway.chat.metrics import AnswerMeter
from omni_gateway.coordinator import RequestHandle
from omni_wire.errors import RequestAborted, ServiceError

QUEUED_EVENTS = 16
"""Events of one answer that may wait for their reader; the stages wait beyond that."""


@dataclass(frozen=True, slots=True)
class ChoiceEvent:
    """One event, and the answer it belongs to."""

    choice: int
    event: ChatEvent


class Answers:
    """The answers to a submitted request.

    Attributes:
        request_id: name of the request; of the first answer when there are several.
    """

    def __init__(
        self,
        handles: Sequence[RequestHandle],
        meters: Sequence[AnswerMeter],
        sample_rate: int,
        stage_events: bool,
    ) -> None:
        self._handles = handles
        self._meters = meters
        self._sample_rate = sample_rate
        self._stage_events = stage_events
        self.request_id = handles[0].request_id

    async def events(self) -> AsyncGenerator[ChoiceEvent, None]:
        """Yield the events of every answer as they arise.

        Raises:
            ServiceError: an answer failed; the others are aborted.
        """
        found = self._one(0) if len(self._handles) == 1 else self._interleaved()
        async with aclosing(found):
            async for event in found:
                yield event

    async def _one(self, choice: int) -> AsyncGenerator[ChoiceEvent, None]:
        meter = self._meters[choice]
        outcome = RequestAborted.reason
        try:
            handle = self._handles[choice]
            async for event in answer_events(handle, self._sample_rate, self._stage_events):
                meter.saw(event)
                if isinstance(event, Finished):
                    outcome = ""
                yield ChoiceEvent(choice, event)
        except ServiceError as error:
            outcome = error.info.reason
            error.details.update(meter.made)
            raise
        finally:
            if outcome:
                meter.failed(outcome)

    async def _interleaved(self) -> AsyncGenerator[ChoiceEvent, None]:
        queue: asyncio.Queue[ChoiceEvent | BaseException | None] = asyncio.Queue(
            QUEUED_EVENTS * len(self._handles)
        )
        tasks = [
            asyncio.create_task(self._feed(choice, queue)) for choice in range(len(self._handles))
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
        self, choice: int, queue: asyncio.Queue[ChoiceEvent | BaseException | None]
    ) -> None:
        try:
            async with aclosing(self._one(choice)) as events:
                async for event in events:
                    await queue.put(event)
        except Exception as error:  # the reader raises it: nothing else awaits this task
            await queue.put(error)
            return
        await queue.put(None)
