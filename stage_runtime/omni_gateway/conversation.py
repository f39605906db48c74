"""One Converse stream: files uploaded in parts, several requests at once, each cancelled alone.

A failed request is an event of the stream; only a broken stream ends with a status.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from omni_gateway.uploads import Uploads
from omni_wire.encoder import encode_error
from omni_wire.errors import InvalidRequest, RequestAborted, RequestExists, ServiceError
from omni_wire.v1 import gateway_pb2 as pb

Emit: TypeAlias = "Callable[[pb.GenerateEvent], Awaitable[None]]"
Answer: TypeAlias = "Callable[[pb.GenerateRequest, dict[str, bytes], Emit], Awaitable[None]]"

QUEUED_EVENTS = 32
"""Events of the stream that may wait for its reader; every request of it waits beyond that."""
MAX_REQUESTS = 64
"""Most unfinished requests on one stream."""


@dataclass(eq=False)
class Conversation:
    """The state of one stream.

    Args:
        answer: answers one request, giving each event to a callable; raises ServiceError.
        uploads: its files; forgotten at its end.
    """

    answer: Answer
    uploads: Uploads
    _requests: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _events: asyncio.Queue[pb.ConverseEvent | None] = field(
        default_factory=lambda: asyncio.Queue(QUEUED_EVENTS)
    )
    _left: bool = False
    """Whether nobody reads events any more, so that nobody must wait for a place among them."""

    async def run(
        self, actions: AsyncIterator[pb.ConverseRequest]
    ) -> AsyncGenerator[pb.ConverseEvent, None]:
        """Yield events until the client has said everything and every request has ended."""
        reader = asyncio.create_task(self._read(actions))
        try:
            while (event := await self._events.get()) is not None:
                yield event
            await reader
        finally:
            self._left = True
            tasks = [reader, *self._requests.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.uploads.close()

    async def _read(self, actions: AsyncIterator[pb.ConverseRequest]) -> None:
        try:
            async for action in actions:
                await self._act(action)
            await asyncio.gather(*self._requests.values(), return_exceptions=True)
        finally:
            await self._say(None)

    async def _act(self, action: pb.ConverseRequest) -> None:
        kind = action.WhichOneof("action")
        if kind == "upload":
            try:
                received = self.uploads.add(action.upload)
            except ServiceError as error:
                await self._fail(action.upload.upload_id, error)
            else:
                await self._say(pb.ConverseEvent(upload=received))
        elif kind == "cancel":
            task = self._requests.get(action.cancel.request_id)
            if task is not None:
                task.cancel()
        elif kind == "generate":
            await self._begin(action.generate)

    async def _begin(self, request: pb.GenerateRequest) -> None:
        name = request.request_id
        if not name:
            error = InvalidRequest(
                "request_id is empty; events of a stream name their request",
                details={"field": "request_id"},
            )
            return await self._fail(name, error)
        if name in self._requests:
            return await self._fail(name, RequestExists(f"'{name}' is in use on this stream"))
        if len(self._requests) >= MAX_REQUESTS:
            message = f"a stream carries at most {MAX_REQUESTS} requests at once"
            return await self._fail(name, InvalidRequest(message))
        task = asyncio.create_task(self._answer(request))
        self._requests[name] = task
        task.add_done_callback(lambda _: self._requests.pop(name, None))
        return None

    async def _answer(self, request: pb.GenerateRequest) -> None:
        async def emit(event: pb.GenerateEvent) -> None:
            await self._say(pb.ConverseEvent(generate=event))

        try:
            await self.answer(request, dict(self.uploads.complete), emit)
        except ServiceError as error:
            await self._fail(request.request_id, error)
        except asyncio.CancelledError:
            await self._fail(request.request_id, RequestAborted("cancelled by the client"))
            raise

    async def _fail(self, request_id: str, error: ServiceError) -> None:
        failed = pb.RequestFailed(request_id=request_id)
        encode_error(error.info, failed.error)
        await self._say(pb.ConverseEvent(failed=failed))

    async def _say(self, event: pb.ConverseEvent | None) -> None:
        if not self._left:
            await self._events.put(event)
