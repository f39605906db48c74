"""`/v1/audio/transcriptions`: what a recording says, as the model hears it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, ClassVar, Literal

from fastapi import APIRouter
from pydantic import ConfigDict, Field, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from omni_gateway.chat.answers import ChoiceEvent
from omni_gateway.chat.events import Finished, TextDelta
from omni_gateway.chat.request import ChatRequest
from omni_gateway.chat.request import refused as refusal
from omni_gateway.http_api.answering import (
    EVENT_STREAM,
    AnswerStream,
    Pieces,
    events_of,
    while_connected,
)
from omni_gateway.http_api.context import HttpContext, request_id_of, require_media_type
from omni_gateway.http_api.errors import invalid_body
from omni_gateway.http_api.model import ApiModel, refused, served
from omni_gateway.http_api.openapi import body_of, responses_of
from omni_wire.errors import InvalidRequest
from omni_wire.messages import Tree

MULTIPART = "multipart/form-data"
TRANSCRIBE = "Transcribe the recording word for word, and say nothing else."
MAX_FIELDS = 32


class TranscriptionRequest(ApiModel):
    """A recording to write down; a multipart form."""

    # Forms hold text: "0.5" is a number here.
    model_config: ClassVar[ConfigDict] = ConfigDict(strict=False)

    file: bytes = Field(description="The recording.", min_length=1)
    model: str = Field(description="Name of the pipeline.")
    language: str | None = served("Language of the recording, told to the model.", max_length=64)
    prompt: str | None = served("Hints for the model, such as names.", max_length=8192)
    response_format: Literal["json", "text"] = Field("json", description="Form of the answer.")
    temperature: float | None = served("0 is greedy.", ge=0, le=2)
    stream: bool | None = served("Send the text as it arises, as server-sent events.")
    timestamp_granularities: str | None = refused("the model gives no times.")
    include: str | None = refused("the engine reports no log probabilities here.")
    known_speaker_names: str | None = refused("speakers are not told apart.")
    known_speaker_references: str | None = refused("speakers are not told apart.")
    chunking_strategy: str | None = refused("a recording is heard whole.", "auto")

    def chat_request(self, request_id: str) -> ChatRequest:
        """Return the chat request."""
        asked = [TRANSCRIBE]
        if self.language:
            asked.append(f"Its language is {self.language}.")
        if self.prompt:
            asked.append(f"Hints: {self.prompt}")
        sound: dict[str, Tree] = {"type": "input_audio", "input_audio": {"data": self.file}}
        content: list[Tree] = [sound, {"type": "text", "text": " ".join(asked)}]
        message: dict[str, Tree] = {"role": "user", "content": content}
        params: dict[str, Tree] = (
            {} if self.temperature is None else {"temperature": self.temperature}
        )
        return ChatRequest({"messages": [message]}, params, ("text",), request_id)


def transcription_routes(context: HttpContext) -> APIRouter:
    """Return the routes of transcription."""
    router = APIRouter(tags=["audio"])
    route = _TranscriptionRoute(context)

    @router.post(
        "/v1/audio/transcriptions",
        openapi_extra=body_of(TranscriptionRequest, MULTIPART),
        responses=responses_of("application/json", "text/plain", EVENT_STREAM),
    )
    async def transcriptions(request: Request) -> Response:
        """Write down what a recording says."""
        return await route.answer(request)

    return router


class _TranscriptionRoute:
    def __init__(self, context: HttpContext) -> None:
        self._context = context
        self._chat = context.chat

    async def answer(self, request: Request) -> Response:
        caller = self._context.let_in(request)
        asked = await _read_form(request)
        self._chat.check_model(asked.model)
        name = request_id_of(request, None)
        events = self._context.answers(asked.chat_request(name), caller)
        if asked.stream:
            pieces = await Pieces.begun(request, events_of(_objects(events)))
            return AnswerStream(pieces, EVENT_STREAM, name)
        text = await while_connected(request, _text(events))
        if asked.response_format == "text":
            return PlainTextResponse(text)
        return JSONResponse({"text": text})


async def _objects(
    events: AsyncGenerator[ChoiceEvent, None],
) -> AsyncGenerator[dict[str, Any], None]:
    texts: list[str] = []
    async with aclosing(events):
        async for found in events:
            match found.event:
                case TextDelta(text=text) if text:
                    texts.append(text)
                    yield {"type": "transcript.text.delta", "delta": text}
                case Finished():
                    yield {"type": "transcript.text.done", "text": "".join(texts)}


async def _text(events: AsyncGenerator[ChoiceEvent, None]) -> str:
    async with aclosing(events):
        made = [found.event async for found in events]
    return "".join(event.text for event in made if isinstance(event, TextDelta))


async def _read_form(request: Request) -> TranscriptionRequest:
    require_media_type(request, MULTIPART)
    fields: dict[str, object] = {}
    try:
        async with request.form(max_files=1, max_fields=MAX_FIELDS) as form:
            for name, value in form.multi_items():
                field = name.removesuffix("[]")
                if field in fields:
                    raise refusal(field[:64], "is given twice")
                is_file = isinstance(value, UploadFile)
                if is_file != (field == "file"):
                    raise refusal(field[:64], "is a file" if is_file else "is no file")
                fields[field] = await value.read() if isinstance(value, UploadFile) else value
    except HTTPException as error:
        raise InvalidRequest(f"the form cannot be read: {error.detail}") from error
    try:
        return TranscriptionRequest.model_validate(fields)
    except ValidationError as error:
        raise invalid_body(error) from error
