"""The whole gRPC API: chat for pipelines that chat, trees for every pipeline."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeAlias

import grpc
import numpy as np
import numpy.typing as npt

from omni_gateway.chat.answer import joined
from omni_gateway.chat.audio import AudioEncoder
from omni_gateway.chat.calls import CallGathering
from omni_gateway.chat.events import (
    AudioDelta,
    Finished,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from omni_gateway.chat.protos import (
    call_proto,
    chat_request,
    event_protos,
    logprob_proto,
    usage_proto,
)
from omni_gateway.chat.request import refused
from omni_gateway.chat.service import ChatService
from omni_gateway.conversation import Conversation, Emit
from omni_gateway.generate_service import GenerateService, headers, timeout_of
from omni_gateway.uploads import UploadMemory, Uploads
from omni_wire.errors import ServiceError
from omni_wire.status import abort_with
from omni_wire.trees import to_proto
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
        gathered = [_Gathered(self._encoder(request)) for _ in range(asked.choices)]
        async with (
            self.chat.submitted(asked, sent, API) as answers,
            aclosing(answers.events()) as events,
        ):
            async for found in events:
                gathered[found.choice].add(found.event)
        usage = Usage()
        for one in gathered:
            usage = usage.plus(one.finished.usage)
        response = pb.GenerateResponse(request_id=answers.request_id, usage=usage_proto(usage))
        for index, one in enumerate(gathered):
            response.choices.append(one.choice(index))
        for stage, result in gathered[0].finished.results.items():
            response.outputs[stage].CopyFrom(to_proto(result))
        return response

    def _encoder(self, request: pb.GenerateRequest) -> AudioEncoder:
        rate, own = request.audio.sample_rate, self.chat.sample_rate
        if rate and rate != own:
            raise refused("audio.sample_rate", f"must be {own}, the model's own, got {rate}")
        return AudioEncoder(request.audio.encoding, own)


class _Gathered:
    """One whole answer."""

    def __init__(self, encoder: AudioEncoder) -> None:
        self._encoder = encoder
        self._texts: list[str] = []
        self._samples: list[npt.NDArray[np.float32]] = []
        self._logprobs: list[TokenLogprob] = []
        self._calls = CallGathering()
        self.finished = Finished("stop", Usage())

    def add(self, event: object) -> None:
        match event:
            case TextDelta(text=text, logprobs=logprobs):
                self._texts.append(text)
                self._logprobs += logprobs
            case ToolCallDelta():
                self._calls.add(event)
            case AudioDelta(samples=samples):
                self._samples.append(samples)
            case Finished():
                self.finished = event

    def choice(self, index: int) -> pb.Choice:
        encoder, samples = self._encoder, joined(self._samples)
        audio = pb.Audio(
            data=encoder.whole(samples) if len(samples) else b"",
            format=pb.AudioFormat(encoding=encoder.encoding, sample_rate=encoder.sample_rate),
            channels=1,
            samples=len(samples),
        )
        return pb.Choice(
            index=index,
            text="".join(self._texts),
            finish_reason=self.finished.reason,
            audio=audio if len(samples) else None,
            tool_calls=map(call_proto, self._calls.calls),
            logprobs=map(logprob_proto, self._logprobs),
        )
