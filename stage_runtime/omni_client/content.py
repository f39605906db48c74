"""What a request says: messages with text, pictures, sounds and videos.

A message is plain text, a dictionary as OpenAI's API has it, or a `Message`. Files come as paths,
bytes or URLs; a path is read here, a URL is fetched by the gateway and only where it allows that.
"""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote_to_bytes

from omni_client.tools import ToolCall, call_protos
from omni_wire.errors import InvalidRequest
from omni_wire.v1 import gateway_pb2 as pb

Source: TypeAlias = "str | PathLike[str] | bytes"
"""A URL (http, https or data), a path, or the bytes of a file."""

_URL_SCHEMES = ("http://", "https://")
_KINDS = ("image", "audio", "video")


@dataclass(frozen=True, slots=True)
class Media:
    """A file of one kind.

    Attributes:
        kind: `image`, `audio` or `video`.
        source: URL, path or bytes.
        mime_type: such as `image/png`; guessed from a path's ending when empty.
    """

    kind: str
    source: Source
    mime_type: str = ""


def image(source: Source, mime_type: str = "") -> Media:
    """Return a picture for a message."""
    return Media("image", source, mime_type)


def audio(source: Source, mime_type: str = "") -> Media:
    """Return a sound for a message."""
    return Media("audio", source, mime_type)


def video(source: Source, mime_type: str = "") -> Media:
    """Return a video for a message."""
    return Media("video", source, mime_type)


Part: TypeAlias = "str | Media"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation.

    Attributes:
        role: `system`, `user`, `assistant` or `tool`.
        tool_calls: what an earlier answer asked to call.
        tool_call_id: the call that a tool's message answers.
    """

    role: str
    content: Sequence[Part]
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str = ""

    @classmethod
    def user(cls, *content: Part) -> Message:
        """Return what the user says."""
        return cls("user", content)

    @classmethod
    def system(cls, *content: Part) -> Message:
        """Return an instruction."""
        return cls("system", content)

    @classmethod
    def assistant(cls, *content: Part, tool_calls: Sequence[ToolCall] = ()) -> Message:
        """Return an earlier answer."""
        return cls("assistant", content, tool_calls)

    @classmethod
    def tool(cls, tool_call_id: str, *content: Part) -> Message:
        """Return what a called function gave."""
        return cls("tool", content, (), tool_call_id)


MessageLike: TypeAlias = "str | Message | Mapping[str, object]"
Messages: TypeAlias = "MessageLike | Sequence[MessageLike | Media]"
"""A conversation; a list that holds a picture, sound or video is one message of the user."""


def message_protos(messages: Messages) -> list[pb.Message]:
    """Return messages as the gateway takes them.

    Raises:
        InvalidRequest: a message or part has no meaning, or a file cannot be read.
    """
    if isinstance(messages, (str, Message, Mapping)):
        messages = [messages]
    if not messages:
        raise _refused("messages", "is empty; write at least one message")
    if any(isinstance(message, Media) for message in messages):
        return [_user_message(messages)]
    return [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _user_message(parts: Sequence[object]) -> pb.Message:
    content = [_part(part, f"messages[{i}]") for i, part in enumerate(parts)]
    return pb.Message(role="user", content=content)


def _message(message: object, where: str) -> pb.Message:
    if isinstance(message, str):
        return pb.Message(role="user", content=[pb.ContentPart(text=message)])
    if isinstance(message, Message):
        parts = [_part(part, f"{where}.content[{i}]") for i, part in enumerate(message.content)]
        return pb.Message(
            role=message.role,
            content=parts,
            tool_calls=call_protos(message.tool_calls, f"{where}.tool_calls"),
            tool_call_id=message.tool_call_id,
        )
    if not isinstance(message, Mapping):
        raise _refused(where, f"is a {type(message).__name__}; write text, a Message or a mapping")
    return _openai_message(message, where)


def _part(part: object, where: str) -> pb.ContentPart:
    if isinstance(part, str):
        return pb.ContentPart(text=part)
    if not isinstance(part, Media):
        raise _refused(where, f"is a {type(part).__name__}; write text, image(), audio(), video()")
    return _media_part(part, where)


def _media_part(media: Media, where: str) -> pb.ContentPart:
    if media.kind not in _KINDS:
        raise _refused(where, f"has the kind {media.kind!r}; known: {', '.join(_KINDS)}")
    proto = _media(media, where)
    if media.kind == "image":
        return pb.ContentPart(image=proto)
    if media.kind == "audio":
        return pb.ContentPart(audio=proto)
    return pb.ContentPart(video=proto)


def _media(media: Media, where: str) -> pb.Media:
    source = media.source
    if isinstance(source, (bytes, bytearray, memoryview)):
        return pb.Media(data=bytes(source), mime_type=media.mime_type)
    if isinstance(source, str) and source.startswith(_URL_SCHEMES):
        return pb.Media(url=source, mime_type=media.mime_type)
    if isinstance(source, str) and source.startswith("data:"):
        return _data_url(source, where)
    path = Path(source)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _refused(where, f"cannot read {path}: {error.strerror}") from error
    guessed = mimetypes.guess_type(path.name)[0] or ""
    return pb.Media(data=data, mime_type=media.mime_type or guessed)


def _data_url(url: str, where: str) -> pb.Media:
    header, comma, body = url.removeprefix("data:").partition(",")
    if not comma:
        raise _refused(where, "is a data URL without a comma")
    try:
        data = base64.b64decode(body) if header.endswith(";base64") else unquote_to_bytes(body)
    except ValueError as error:
        raise _refused(where, f"is a data URL that is not base64: {error}") from error
    return pb.Media(data=data, mime_type=header.partition(";")[0])


def _openai_message(message: Mapping[str, object], where: str) -> pb.Message:
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        raise _refused(f"{where}.role", f"must be text, got {role!r}")
    proto = pb.Message(role=role)
    if isinstance(content, str):
        proto.content.add(text=content)
    elif isinstance(content, Sequence):
        for index, part in enumerate(content):
            proto.content.append(_openai_part(part, f"{where}.content[{index}]"))
    elif content is not None:
        raise _refused(f"{where}.content", f"must be text or a list, got {content!r}")
    tool_call_id = message.get("tool_call_id")
    if isinstance(tool_call_id, str):
        proto.tool_call_id = tool_call_id
    if message.get("tool_calls") is not None:
        proto.tool_calls.extend(call_protos(message["tool_calls"], f"{where}.tool_calls"))
    return proto


def _openai_part(part: object, where: str) -> pb.ContentPart:
    if not isinstance(part, Mapping):
        raise _refused(where, f"must be a mapping with a type, got {part!r}")
    kind = part.get("type")
    value = part.get(str(kind))
    if kind == "text" and isinstance(value, str):
        return pb.ContentPart(text=value)
    if kind == "input_audio" and isinstance(value, Mapping):
        return _input_audio(value, f"{where}.input_audio")
    if kind in ("image_url", "audio_url", "video_url"):
        url = value.get("url") if isinstance(value, Mapping) else value
        if not isinstance(url, str):
            raise _refused(f"{where}.{kind}.url", f"must be text, got {url!r}")
        return _media_part(Media(str(kind).removesuffix("_url"), url), where)
    known = "text, image_url, input_audio, audio_url, video_url"
    raise _refused(where, f"has the type {kind!r}; known: {known}")


def _input_audio(value: Mapping[str, object], where: str) -> pb.ContentPart:
    data, encoding = value.get("data"), value.get("format", "")
    if not isinstance(data, str):
        raise _refused(f"{where}.data", "must be base64 text")
    try:
        raw = base64.b64decode(data, validate=True)
    except ValueError as error:
        raise _refused(f"{where}.data", f"is not base64: {error}") from error
    return pb.ContentPart(
        audio=pb.Media(data=raw, mime_type=f"audio/{encoding}" if encoding else "")
    )


def _refused(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"{field} {problem}", details={"field": field})
