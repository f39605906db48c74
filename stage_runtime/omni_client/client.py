"""The synchronous client."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Unpack, cast

import grpc

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


class OmniClient:
    """A client of one gateway; use it as a context manager, or close it.

    It is safe to share between threads.

    Args:
        target: `host:port`, or any gRPC target.
        api_key: key of this application, when the gateway asks for one.
        tls: certificates; null for plaintext.
        timeout_seconds: default time for a whole request.
        retries: when to try again.
    """

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
            grpc.insecure_channel(target, options)
            if tls is None
            else grpc.secure_channel(target, tls.credentials(), options)
        )
        self._stub = pb_grpc.GatewayServiceStub(self._channel)

    def __enter__(self) -> OmniClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; requests in flight are cancelled."""
        self._channel.close()

    def chat(
        self, messages: Messages, options: ChatOptions | None = None, **more: Unpack[ChatArguments]
    ) -> Answer:
        """Return the whole answer to a conversation.

        Args:
            messages: text, a `Message`, an OpenAI-style mapping, or a list of them.
            options: everything else; fields of `ChatOptions` may be given by name instead.

        Raises:
            ServiceError: the request failed; `retryable` says whether it may succeed again.
        """
        with self.stream(messages, options, **more) as events:
            return events.answer()

    def stream(
        self, messages: Messages, options: ChatOptions | None = None, **more: Unpack[ChatArguments]
    ) -> EventStream:
        """Return the events of an answer as they arise; see `chat`."""
        chosen = replace(options or ChatOptions(), **more)
        return self._events(chat_request(messages, chosen), chosen)

    def generate(
        self,
        inputs: Mapping[str, Tree],
        options: ChatOptions | None = None,
        **more: Unpack[ChatArguments],
    ) -> EventStream:
        """Return the events of a request to a pipeline that does not chat; see `chat`."""
        chosen = replace(options or ChatOptions(), **more)
        return self._events(generic_request(inputs, chosen), chosen)

    def speech(self, text: str, **more: Unpack[ChatArguments]) -> Audio:
        """Return a text read aloud.

        Raises:
            ServiceError: the request failed.
        """
        more["modalities"] = ["audio"]
        answer = self.chat(READ_ALOUD + text, **more)
        if answer.audio is None:
            raise StageFailed("the pipeline answered without audio")
        return answer.audio

    def pipeline(self, *, config: bool = False) -> Pipeline:
        """Return what runs behind the gateway; `config` asks for the resolved configuration too.

        Raises:
            ServiceError: the gateway cannot be reached.
        """
        request = pb.GetPipelineRequest(config=config)
        try:
            answer = self._stub.GetPipeline(
                request,
                metadata=self._connection.metadata,
                timeout=self._connection.timeout_seconds,
            )
        except grpc.RpcError as error:
            raise error_of(cast(grpc.Call, error)) from error
        return pipeline_of(answer)

    def _events(self, request: pb.GenerateRequest, options: ChatOptions) -> EventStream:
        timeout = options.timeout_seconds or self._connection.timeout_seconds
        return EventStream(self._stub, self._connection, request, timeout)


class EventStream(Iterator[Event]):
    """The events of one request; closing it early cancels the request.

    A request that failed before its first event is tried again, as `Retries` allows.
    """

    def __init__(
        self,
        stub: pb_grpc.GatewayServiceStub,
        connection: Connection,
        request: pb.GenerateRequest,
        timeout_seconds: float,
    ) -> None:
        self._stub = stub
        self._connection = connection
        self._request = request
        self._attempts = Attempts(request.request_id, timeout_seconds, connection.retries)
        self._call: grpc.RpcContext | None = None
        self._events = self._run()

    @property
    def request_id(self) -> str:
        """Name of the request in logs and traces."""
        return self._attempts.request_id

    def __iter__(self) -> EventStream:
        return self

    def __next__(self) -> Event:
        return next(self._events)

    def __enter__(self) -> EventStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the request wherever it is."""
        self._events.close()
        if self._call is not None:
            self._call.cancel()

    def answer(self) -> Answer:
        """Return the whole answer, from the events that were not read yet."""
        return AnswerBuilder().extend(self).answer()

    def _run(self) -> Generator[Event, None, None]:
        while True:
            try:
                for event in self._attempt():
                    self._attempts.delivered = True
                    yield event
                return
            except ServiceError as error:
                time.sleep(self._attempts.wait_after(error))

    def _attempt(self) -> Iterator[Event]:
        self._request.request_id = self._attempts.request_id
        try:
            for event in self._received():
                if event is not None:
                    yield event
        except grpc.RpcError as error:
            raise error_of(cast(grpc.Call, error)) from error

    def _received(self) -> Iterator[Event | None]:
        metadata, timeout = self._connection.metadata, self._attempts.seconds_left
        if needs_upload(self._request):
            parts = upload_messages(self._request)
            talk = self._stub.Converse(parts, metadata=metadata, timeout=timeout)
            self._call = talk
            for message in talk:
                yield converse_event(message)
            return
        call = self._stub.GenerateStream(self._request, metadata=metadata, timeout=timeout)
        self._call = call
        for event in call:
            yield event_of(event)
