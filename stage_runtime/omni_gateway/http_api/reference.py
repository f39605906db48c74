"""docs/api.md, written from the models that read requests and from the gRPC descriptors."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from omni_gateway.chat.protos import SERVED
from omni_gateway.http_api.chat_request import (
    Audio,
    ChatCompletionRequest,
    StageSampling,
    StreamOptions,
)
from omni_gateway.http_api.errors import STATUSES
from omni_gateway.http_api.messages import (
    ImageUrl,
    Message,
    Sound,
    SoundUrlPart,
    TextPart,
    ToolCall,
    VideoPart,
)
from omni_gateway.http_api.model import harmless_values
from omni_gateway.http_api.speech_routes import SpeechRequest
from omni_gateway.http_api.structured import (
    FunctionTool,
    JsonSchema,
    JsonSchemaFormat,
    NamedChoice,
    Tool,
)
from omni_gateway.http_api.transcription_routes import TranscriptionRequest
from omni_wire.v1 import gateway_pb2 as pb

INTRODUCTION = """# The gateway's APIs

<!-- Written by `make generate` from the models that read requests; do not edit. -->

Every field below is acted on, or refused by its name with 400. A field that is not listed is
refused too. A refused field may be null, or have a value named as harmless, which asks for nothing.

An API key travels as `Authorization: Bearer KEY` in both APIs. Errors have OpenAI's shape,
`{"error": {"message", "type", "param", "code", "retryable"}}`; `code` is a stable word.
`stage` names the stage that failed, and `made` says how many tokens and seconds of speech there
were by then; a stream has sent them before its error. 429 and 503 come with `Retry-After`. A
response carries the request's name in `x-request-id`.
"""

SECTIONS: tuple[tuple[str, tuple[type[BaseModel], ...]], ...] = (
    (
        "POST /v1/chat/completions",
        (
            ChatCompletionRequest,
            Audio,
            StreamOptions,
            StageSampling,
            Message,
            TextPart,
            ImageUrl,
            Sound,
            SoundUrlPart,
            VideoPart,
            ToolCall,
            JsonSchemaFormat,
            JsonSchema,
            Tool,
            FunctionTool,
            NamedChoice,
        ),
    ),
    ("POST /v1/audio/speech", (SpeechRequest,)),
    ("POST /v1/audio/transcriptions", (TranscriptionRequest,)),
)


def api_reference() -> str:
    """Return the page."""
    return "\n".join([INTRODUCTION, *_http(), *_errors(), *_grpc()]).rstrip() + "\n"


def _http() -> Iterator[str]:
    for title, models in SECTIONS:
        yield f"## {title}\n"
        for model in models:
            if model is not models[0]:
                yield f"### {model.__name__}\n"
            yield f"{(model.__doc__ or '').strip()}\n"
            yield "| field | type | |\n|---|---|---|"
            for name, field in model.model_fields.items():
                says = _says(model, name, field)
                yield f"| `{field.alias or name}` | {_type(field)} | {says} |"
            yield ""


def _says(model: type[BaseModel], name: str, field: FieldInfo) -> str:
    text = (field.description or "").replace("|", "\\|").strip()
    harmless = harmless_values(model, name)
    if harmless is None:
        return f"**required** {text}".strip() if field.is_required() else text
    values = [f"`{value!r}`" for value in harmless if value is not None]
    return text + (f" Harmless: {', '.join(values)}." if values else "")


def _type(field: FieldInfo) -> str:
    return f"`{_named(field.annotation)}`".replace("|", "\\|")


def _named(kind: object) -> str:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _named(inner[0])
    if origin in (typing.Union, types.UnionType):
        return " | ".join(_named(one) for one in inner if one is not types.NoneType)
    if origin is typing.Literal:
        return " | ".join(f'"{one}"' for one in inner)
    if origin is not None:
        return f"{_named(origin)}[{', '.join(map(_named, inner))}]"
    return getattr(kind, "__name__", str(kind))


def _errors() -> Iterator[str]:
    yield "## Statuses\n"
    yield "| gRPC | HTTP |\n|---|---|"
    for name, status in STATUSES.items():
        yield f"| `{name}` | {status} |"
    yield "| any other | 500 |\n"


def _grpc() -> Iterator[str]:
    yield "## GenerateRequest over gRPC\n"
    yield "`protos/omni/v1/gateway.proto` explains each field. With `messages`, these are served:\n"
    yield "| field | |\n|---|---|"
    descriptor: Descriptor = pb.GenerateRequest.DESCRIPTOR
    for field in descriptor.fields:
        served = "acted on" if field.name in SERVED else "refused when it is set"
        yield f"| `{field.name}` | {served} |"
