"""Messages of a chat request, in OpenAI's shape, with videos beside what OpenAI has."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from omni_gateway.http_api.model import ApiModel, refused, served

MAX_MESSAGES = 4096
MAX_PARTS = 4096


class Url(ApiModel):
    """Where media is."""

    url: str = Field(description="http, https or data URL; fetched only where policy allows.")


class ImageUrl(Url):
    """Where a picture is."""

    detail: str | None = refused("pictures are always looked at in full.", "auto")


class Sound(ApiModel):
    """A sound in the request."""

    data: str = Field(description="The file, as base64 text.")
    format: str = Field(
        description="Such as wav or mp3; the file itself tells what it is.", max_length=32
    )


class TextPart(ApiModel):
    """Text."""

    type: Literal["text"]
    text: str


class ImagePart(ApiModel):
    """A picture."""

    type: Literal["image_url"]
    image_url: ImageUrl


class SoundPart(ApiModel):
    """A sound in the request."""

    type: Literal["input_audio"]
    input_audio: Sound


class SoundUrlPart(ApiModel):
    """A sound elsewhere."""

    type: Literal["audio_url"]
    audio_url: Url


class VideoPart(ApiModel):
    """A video."""

    type: Literal["video_url"]
    video_url: Url


Part: TypeAlias = Annotated[
    TextPart | ImagePart | SoundPart | SoundUrlPart | VideoPart, Field(discriminator="type")
]


class Function(ApiModel):
    """A function that an earlier answer called."""

    name: str
    arguments: str = Field(description="JSON text.")


class ToolCall(ApiModel):
    """A call in an earlier answer."""

    id: str
    type: Literal["function"]
    function: Function


class Message(ApiModel):
    """One turn of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[Part], Field(max_length=MAX_PARTS)] | None = served(
        "Text, or parts: text, image_url, input_audio, audio_url, video_url."
    )
    name: str | None = served("Name of who speaks, for the chat template.")
    tool_calls: list[ToolCall] | None = served("Calls of an earlier answer.")
    tool_call_id: str | None = served("The call that a tool message answers.")
    refusal: str | None = refused("answers hold no refusals.")
    audio: dict[str, Any] | None = refused("earlier speech is not kept; send its text.")
    function_call: dict[str, Any] | None = refused("deprecated by OpenAI.")
    annotations: list[Any] | None = refused("answers hold none.", [])
