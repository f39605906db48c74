"""The whole gRPC API: chat for pipelines that chat, trees for every pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeAlias

import grpc

from omni_gateway.chat.audio import AudioEncoder
from omni_gateway.chat.protos import chat_request, event_protos, response_proto
from omni_gateway.chat.request import refused
from omni_gateway.chat.service import ChatService
from omni_gateway.chat.whole import WholeAnswers
from omni_gateway.conversation import Conversation, Emit
from omni_gateway.generate_service import GenerateService, headers, timeout_of
from omni_gateway.uploads import UploadMemory, Uploads
from omni_wire.errors import ServiceError
from omni_wire.status import abort_with
from omni_wire.v1 import gateway_pb2 as pb

_UnaryContext: TypeAlias = "grpc.aio.ServicerContext[pb.GenerateRequest, pb.GenerateResponse]"
_StreamContext: TypeAlias = "grpc.aio.ServicerContext[pb.GenerateRequest, pb.GenerateEvent]"
_ConverseContext: TypeAlias = "grpc.aio.ServicerContext[pb.ConverseRequest, pb.ConverseEvent]"

API = "grpc"


@dataclass(eq=False)
class ApiService(GenerateService):
    """Serves `omni.v1.GatewayService`."""

    chat: ChatService
    upload_memory: UploadMemory = field(default_factory=UploadMemory)

    async def Generate(  # noqa: N802
        self, request: pb.GenerateRequest, context: _UnaryContext
    ) -> pb.GenerateResponse:
        """Answer once."""
        if not request.messages:
            return await super().Generate(request, context)
        try:
            return await self._whole(request, timeout_of(request, context), headers(context))
        except ServiceError as error:
            await abort_with(context, error)

    async def GenerateStream(  # noqa: N802
        self, request: pb.GenerateRequest, context: _StreamContext
    ) -> AsyncIterator[pb.GenerateEvent]:
        """Answer as it arises."""
        if not request.messages:
            async for event in super().GenerateStream(request, context):
                yield event
            return
        try:
            timeout = timeout_of(request, context)
            async with aclosing(self._streamed(request, timeout, headers(context), {})) as events:
                async for event in events:
                    yield event
        except ServiceError as error:
            await abort_with(context, error)

    async def Converse(  # type: ignore[override]  # noqa: N802  # a generator, as the stub has it
        self, request_iterator: AsyncIterator[pb.ConverseRequest], context: _ConverseContext
    ) -> AsyncIterator[pb.ConverseEvent]:
        """Serve several requests on one stream."""
        sent = headers(context)

        async def answer(
            request: pb.GenerateRequest, uploads: dict[str, bytes], emit: Emit
        ) -> None:
            timeout = timeout_of(request, context)
            async with aclosing(self._streamed(request, timeout, sent, uploads)) as events:
                async for event in events:
                    await emit(event)

        conversation = Conversation(answer, Uploads(self.upload_memory))
        async with aclosing(conversation.run(request_iterator)) as events:
            async for event in events:
                yield event

    async def _streamed(
        self,
        request: pb.GenerateRequest,
        timeout_seconds: float | None,
        sent: Mapping[str, str],
        uploads: Mapping[str, bytes],
    ) -> AsyncGenerator[pb.GenerateEvent, None]:
        self.chat.check_model(request.model)
        asked = chat_request(request, timeout_seconds, uploads)
        encoders = [self._encoder(request) for _ in range(asked.choices)]
        async with self.chat.submitted(asked, sent, API) as answers:
            name = answers.request_id
            started = pb.Started(model=self.pipeline.name)
            yield pb.GenerateEvent(request_id=name, started=started)
            async with aclosing(answers.events()) as events:
                async for found in events:
                    encoder = encoders[found.choice]
                    for event in event_protos(name, found.choice, found.event, encoder):
                        yield event

    async def _whole(
        self, request: pb.GenerateRequest, timeout_seconds: float | None, sent: Mapping[str, str]
    ) -> pb.GenerateResponse:
        self.chat.check_model(request.model)
        asked = chat_request(request, timeout_seconds, {})
        encoders = [self._encoder(request) for _ in range(asked.choices)]
        whole = WholeAnswers(asked.choices)
        async with (
            self.chat.submitted(asked, sent, API) as answers,
            aclosing(answers.events()) as events,
        ):
            async for found in events:
                whole.add(found)
        # Writing a file of speech takes long enough for others to notice.
        return await asyncio.to_thread(response_proto, answers.request_id, whole, encoders)

    def _encoder(self, request: pb.GenerateRequest) -> AudioEncoder:
        rate, own = request.audio.sample_rate, self.chat.sample_rate
        if rate and rate != own:
            raise refused("audio.sample_rate", f"must be {own}, the model's own, got {rate}")
        return AudioEncoder(request.audio.encoding, own)
