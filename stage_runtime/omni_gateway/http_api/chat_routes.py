"""`/v1/chat/completions`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from omni_gateway.chat.request import ChatRequest
from omni_gateway.chat.whole import WholeAnswers
from omni_gateway.http_api.answering import (
    EVENT_STREAM,
    AnswerStream,
    Pieces,
    events_of,
    while_connected,
)
from omni_gateway.http_api.chat_request import ChatCompletionRequest
from omni_gateway.http_api.completions import CompletionFrame, CompletionStream, completion_json
from omni_gateway.http_api.context import Caller, HttpContext, read_model, request_id_of
from omni_gateway.http_api.openapi import body_of, responses_of

DEFAULT_FORMAT = "wav"


def chat_routes(context: HttpContext) -> APIRouter:
    """Return the routes of chat."""
    router = APIRouter(tags=["chat"])
    route = _ChatRoute(context)

    @router.post(
        "/v1/chat/completions",
        openapi_extra=body_of(ChatCompletionRequest),
        responses=responses_of("application/json", EVENT_STREAM),
    )
    async def chat_completions(request: Request) -> Response:
        """Answer a conversation with text, speech, or both."""
        return await route.answer(request)

    return router


class _ChatRoute:
    def __init__(self, context: HttpContext) -> None:
        self._context = context
        self._chat = context.chat

    async def answer(self, request: Request) -> Response:
        caller = self._context.let_in(request)
        asked = await read_model(request, ChatCompletionRequest)
        self._chat.check_model(asked.model)
        frame = self._frame(asked, request_id_of(request, asked.request_id))
        chat = asked.model_copy(update={"request_id": frame.request_id}).chat_request()
        if asked.stream:
            stream = CompletionStream(frame, chat.choices, asked.includes_usage)
            objects = self._streamed(chat, stream, caller)
            pieces = await Pieces.begun(request, events_of(objects))
            return AnswerStream(pieces, EVENT_STREAM, frame.request_id)
        if frame.speaks:
            frame.encoder()  # refuses what this pipeline cannot say before it is asked to
        whole = WholeAnswers(chat.choices)
        await while_connected(request, self._gather(chat, whole, caller))
        # Writing a file of speech takes long enough for others to notice.
        content = await asyncio.to_thread(completion_json, frame, whole)
        return JSONResponse(content, headers={"x-request-id": frame.request_id})

    def _frame(self, asked: ChatCompletionRequest, request_id: str) -> CompletionFrame:
        return CompletionFrame(
            request_id=request_id,
            model=self._chat.pipeline.name,
            fingerprint=f"fp_{self._chat.pipeline.config_hash[:16]}",
            writes="text" in asked.wanted,
            speaks=asked.speaks,
            audio_format=asked.audio.format if asked.audio is not None else DEFAULT_FORMAT,
            sample_rate=self._chat.sample_rate,
        )

    async def _streamed(
        self, chat: ChatRequest, stream: CompletionStream, caller: Caller
    ) -> AsyncGenerator[dict[str, Any], None]:
        opened = False
        async with aclosing(self._context.answers(chat, caller)) as events:
            async for found in events:
                if not opened:
                    opened = True
                    for chunk in stream.opening():
                        yield chunk
                for chunk in stream.chunks(found):
                    yield chunk
        for chunk in stream.closing():
            yield chunk

    async def _gather(self, chat: ChatRequest, whole: WholeAnswers, caller: Caller) -> None:
        async with aclosing(self._context.answers(chat, caller)) as events:
            async for found in events:
                whole.add(found)
