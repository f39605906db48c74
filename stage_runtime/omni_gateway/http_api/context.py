"""What every route needs, and how a request is let in and read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

from pydantic import ValidationError
from starlette.requests import Request

from omni_gateway.access.guard import Guard, caller_of
from omni_gateway.access.keys import ApiKey
from omni_gateway.chat.answers import ChoiceEvent
from omni_gateway.chat.request import ChatRequest
from omni_gateway.chat.service import ChatService
from omni_gateway.errors import WrongMediaType
from omni_gateway.http_api.errors import invalid_body
from omni_gateway.http_api.model import ApiModel

M = TypeVar("M", bound=ApiModel)

API = "http"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and in what trace.

    Attributes:
        key: null where none is asked for.
        headers: of the request.
    """

    key: ApiKey | None
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HttpContext:
    """The parts of a gateway that routes use."""

    chat: ChatService
    guard: Guard

    def let_in(self, request: Request) -> Caller:
        """Return who sends a request.

        Raises:
            Unauthenticated: there is no key, or it is not accepted.
        """
        key = self.guard.identify(request.headers.get("authorization"))
        request.state.caller = caller_of(key)
        return Caller(key, request.headers)

    async def answers(self, chat: ChatRequest, caller: Caller) -> AsyncGenerator[ChoiceEvent, None]:
        """Yield the events of every answer to a request; closing it early ends the request.

        Raises:
            RateLimited: the caller's key is at its limits.
            ServiceError: the request is refused, or failed.
        """
        with self.guard.using(caller.key):
            async with (
                self.chat.submitted(chat, caller.headers, API) as answers,
                aclosing(answers.events()) as events,
            ):
                async for found in events:
                    yield found


def request_id_of(request: Request, asked: str | None) -> str:
    """Return the name of a request: the client's, or else the one of its log line."""
    name: str = asked or request.state.http_id
    if name.isascii() and name.isprintable():
        request.state.request_id = name
    return name


async def read_model(request: Request, model: type[M]) -> M:
    """Return the body of a request.

    Raises:
        WrongMediaType: it is not declared as JSON; a page of another origin cannot do that unasked.
        InvalidRequest: it is no JSON, or not of the model; the message names the fields.
        BodyTooLarge, BodyTooSlow: it is beyond the limits.
    """
    require_media_type(request, JSON)
    body = await request.body()
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise invalid_body(error) from error


def require_media_type(request: Request, wanted: str) -> None:
    """Check what a request says its body is.

    Raises:
        WrongMediaType: it is something else.
    """
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if found != wanted:
        raise WrongMediaType(f"Content-Type must be {wanted}, got '{found[:64]}'")
