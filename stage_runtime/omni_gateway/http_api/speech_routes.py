"""`/v1/audio/speech`: a text read aloud."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from omni_client.requests import READ_ALOUD
from omni_gateway.chat.audio import MIME_TYPES, AudioEncoder
from omni_gateway.chat.events import AudioDelta, Finished
from omni_gateway.chat.request import ChatRequest
from omni_gateway.http_api.answering import EVENT_STREAM, AnswerStream, Pieces, events_of
from omni_gateway.http_api.completions import usage_json
from omni_gateway.http_api.context import Caller, HttpContext, read_model, request_id_of
from omni_gateway.http_api.model import ApiModel, refused, served
from omni_gateway.http_api.openapi import body_of, responses_of
from omni_wire.messages import Tree

MAX_CHARACTERS = 65_536


class SpeechRequest(ApiModel):
    """A text to read aloud."""

    model: str = Field(description="Name of the pipeline.")
    input: str = Field(description="The text.", min_length=1, max_length=MAX_CHARACTERS)
    voice: str = Field(description="Name of a speaker of the model.", max_length=128)
    response_format: Literal["mp3", "opus", "flac", "wav", "pcm"] = Field(
        "mp3", description="pcm is bare 16-bit samples."
    )
    stream_format: Literal["audio", "sse"] = Field(
        "audio", description="The file itself as it grows, or events with pieces of it."
    )
    speed: float | None = refused("the model speaks at its own pace.", 1.0)
    instructions: str | None = refused("the voice follows the text alone.", "")
    seed: int | None = served("Same seed, same speech.", ge=0, le=2**63 - 1)
    request_id: str | None = served("Name of the request in logs and traces.", max_length=128)
    timeout_seconds: float | None = served("Time for the whole request.", gt=0, le=86_400)

    def chat_request(self, request_id: str) -> ChatRequest:
        """Return the chat request."""
        params: dict[str, Tree] = {"speaker": self.voice}
        if self.seed is not None:
            params["seed"] = self.seed
        message: dict[str, Tree] = {"role": "user", "content": READ_ALOUD + self.input}
        return ChatRequest(
            inputs={"messages": [message]},
            params=params,
            modalities=("audio",),
            request_id=request_id,
            timeout_seconds=self.timeout_seconds,
        )


def speech_routes(context: HttpContext) -> APIRouter:
    """Return the routes of speech."""
    router = APIRouter(tags=["audio"])
    route = _SpeechRoute(context)

    @router.post(
        "/v1/audio/speech",
        openapi_extra=body_of(SpeechRequest),
        responses=responses_of(*dict.fromkeys(MIME_TYPES.values()), EVENT_STREAM),
    )
    async def speech(request: Request) -> Response:
        """Read a text aloud; the response arrives while it is spoken."""
        return await route.answer(request)

    return router


class _SpeechRoute:
    def __init__(self, context: HttpContext) -> None:
        self._context = context
        self._chat = context.chat

    async def answer(self, request: Request) -> Response:
        caller = self._context.let_in(request)
        asked = await read_model(request, SpeechRequest)
        self._chat.check_model(asked.model)
        encoder = AudioEncoder(asked.response_format, self._chat.sample_rate, "response_format")
        name = request_id_of(request, asked.request_id)
        chat = asked.chat_request(name)
        if asked.stream_format == "sse":
            events = events_of(self._events(chat, encoder, caller))
            return AnswerStream(await Pieces.begun(request, events), EVENT_STREAM, name)
        pieces = await Pieces.begun(request, self._audio(chat, encoder, caller))
        return AnswerStream(pieces, MIME_TYPES[encoder.encoding], name)

    async def _audio(
        self, chat: ChatRequest, encoder: AudioEncoder, caller: Caller
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._spoken(chat, encoder, caller)) as spoken:
            async for piece, _ in spoken:
                if piece:
                    yield piece

    async def _events(
        self, chat: ChatRequest, encoder: AudioEncoder, caller: Caller
    ) -> AsyncGenerator[dict[str, Any], None]:
        async with aclosing(self._spoken(chat, encoder, caller)) as spoken:
            async for piece, end in spoken:
                if piece:
                    data = base64.b64encode(piece).decode("ascii")
                    yield {"type": "speech.audio.delta", "audio": data}
                if end is not None:
                    usage = usage_json(end.usage)
                    counts = {
                        "input_tokens": usage["prompt_tokens"],
                        "output_tokens": usage["completion_tokens"],
                        "total_tokens": usage["total_tokens"],
                    }
                    yield {"type": "speech.audio.done", "usage": counts}

    async def _spoken(
        self, chat: ChatRequest, encoder: AudioEncoder, caller: Caller
    ) -> AsyncGenerator[tuple[bytes, Finished | None], None]:
        async with aclosing(self._context.answers(chat, caller)) as events:
            async for found in events:
                match found.event:
                    case AudioDelta(samples=samples):
                        yield encoder.encode(samples), None
                    case Finished():
                        yield encoder.finish(), found.event
