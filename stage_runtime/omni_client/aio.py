"""The asynchronous client; the same words as the synchronous one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Unpack

from grpc import aio

from omni_client.answers import Answer, AnswerBuilder
from omni_client.connection import Attempts, Connection, Retries, Tls
from omni_client.content import Messages
from omni_client.events import Event, converse_event, event_of
from omni_client.pipeline import Pipeline, pipeline_of
from omni_client.requests import (
    READ_ALOUD,
    ChatArguments,
    ChatOptions,
    chat_request,
    generic_request,
)
from omni_client.sound import Audio
from omni_client.uploads import needs_upload, upload_messages
from omni_wire.errors import ServiceError, StageFailed
from omni_wire.messages import Tree
from omni_wire.status import error_of
from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.v1 import gateway_pb2_grpc as pb_grpc


class AsyncOmniClient:
    """A client of one gateway inside an event loop; see `OmniClient`."""

    def __init__(
        self,
        target: str,
        *,
        api_key: str | None = None,
        tls: Tls | None = None,
        timeout_seconds: float = 600.0,
        retries: Retries | None = None,
    ) -> None:
        self._connection = Connection(target, api_key, tls, timeout_seconds, retries or Retries())
        options = self._connection.options
        self._channel = (
            aio.insecure_channel(target, options)
            if tls is None
            else aio.secure_channel(target, tls.credentials(), options)
        )
        self._stub = pb_grpc.GatewayServiceStub(self._channel)

    async def __aenter__(self) -> AsyncOmniClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; requests in flight are cancelled."""
        await self._channel.close()

    async def chat(
        self, messages: Messages, options: ChatOptions | None = None, **more: Unpack[ChatArguments]
    ) -> Answer:
        """Return the whole answer to a conversation; see `OmniClient.chat`."""
        async with self.stream(messages, options, **more) as events:
            return await events.answer()

    def stream(
        self, messages: Messages, options: ChatOptions | None = None, **more: Unpack[ChatArguments]
    ) -> AsyncEventStream:
        """Return the events of an answer as they arise; see `OmniClient.chat`."""
        chosen = replace(options or ChatOptions(), **more)
        return self._events(chat_request(messages, chosen), chosen)

    def generate(
        self,
        inputs: Mapping[str, Tree],
        options: ChatOptions | None = None,
        **more: Unpack[ChatArguments],
    ) -> AsyncEventStream:
        """Return the events of a request to a pipeline that does not chat."""
        chosen = replace(options or ChatOptions(), **more)
        return self._events(generic_request(inputs, chosen), chosen)

    async def speech(self, text: str, **more: Unpack[ChatArguments]) -> Audio:
        """Return a text read aloud; see `OmniClient.speech`."""
        more["modalities"] = ["audio"]
        answer = await self.chat(READ_ALOUD + text, **more)
        if answer.audio is None:
            raise StageFailed("the pipeline answered without audio")
        return answer.audio

    async def pipeline(self, *, config: bool = False) -> Pipeline:
        """Return what runs behind the gateway; see `OmniClient.pipeline`."""
        try:
            answer = await self._stub.GetPipeline(
                pb.GetPipelineRequest(config=config),
                metadata=self._connection.metadata,
                timeout=self._connection.timeout_seconds,
            )
        except aio.AioRpcError as error:
            raise error_of(error) from error
        return pipeline_of(answer)

    def _events(self, request: pb.GenerateRequest, options: ChatOptions) -> AsyncEventStream:
        timeout = options.timeout_seconds or self._connection.timeout_seconds
        return AsyncEventStream(self._stub, self._connection, request, timeout)


class AsyncEventStream(AsyncIterator[Event]):
    """The events of one request; leaving its context early cancels the request."""

    def __init__(
        self,
        stub: pb_grpc.GatewayServiceAsyncStub,
        connection: Connection,
        request: pb.GenerateRequest,
        timeout_seconds: float,
    ) -> None:
        self._stub = stub
        self._connection = connection
        self._request = request
        self._attempts = Attempts(request.request_id, timeout_seconds, connection.retries)
        self._call: aio.Call | None = None
        self._events = self._run()

    @property
    def request_id(self) -> str:
        """Name of the request in logs and traces."""
        return self._attempts.request_id

    def __aiter__(self) -> AsyncEventStream:
        return self

    async def __anext__(self) -> Event:
        return await anext(self._events)

    async def __aenter__(self) -> AsyncEventStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the request wherever it is."""
        await self._events.aclose()
        if self._call is not None:
            self._call.cancel()

    async def answer(self) -> Answer:
        """Return the whole answer, from the events that were not read yet."""
        builder = AnswerBuilder()
        async for event in self:
            builder.add(event)
        return builder.answer()

    async def _run(self) -> AsyncGenerator[Event, None]:
        while True:
            try:
                async for event in self._attempt():
                    self._attempts.delivered = True
                    yield event
                return
            except ServiceError as error:
                await asyncio.sleep(self._attempts.wait_after(error))

    async def _attempt(self) -> AsyncIterator[Event]:
        self._request.request_id = self._attempts.request_id
        try:
            async for event in self._received():
                if event is not None:
                    yield event
        except aio.AioRpcError as error:
            raise error_of(error) from error

    async def _received(self) -> AsyncIterator[Event | None]:
        metadata, timeout = self._connection.metadata, self._attempts.seconds_left
        if needs_upload(self._request):
            parts = upload_messages(self._request)
            talk = self._stub.Converse(parts, metadata=metadata, timeout=timeout)
            self._call = talk
            async for message in talk:
                yield converse_event(message)
            return
        call = self._stub.GenerateStream(self._request, metadata=metadata, timeout=timeout)
        self._call = call
        async for event in call:
            yield event_of(event)
