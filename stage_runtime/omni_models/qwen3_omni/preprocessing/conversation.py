"""OpenAI messages, read: the turns for the chat template, and the media in order of mention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from omni_models.media.limits import FetchPolicy, MediaLimits
from omni_models.media.sources import MediaItem, MediaKind, source_of
from omni_wire.errors import InvalidRequest
from omni_wire.messages import Tree

ROLES = ("system", "developer", "user", "assistant", "tool")

MEDIA_PARTS: Mapping[str, MediaKind] = {
    "image_url": "image",
    "image": "image",
    "video_url": "video",
    "video": "video",
    "input_audio": "audio",
    "audio_url": "audio",
    "audio": "audio",
}
"""Kind of media by type of content part; the part holds it under the same name."""

LISTS: Mapping[str, MediaKind] = {"images": "image", "videos": "video", "audios": "audio"}
"""Media beside the messages; they count as the beginning of the last user message, in this order.
"""

_CARRIED = ("tool_calls", "tool_call_id", "name", "reasoning_content")


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the client said.

    Attributes:
        turns: messages for the chat template; media parts are `{"type": kind}`.
        items: their media, in order of mention.
        texts: every text in them.
    """

    turns: tuple[Mapping[str, object], ...]
    items: tuple[MediaItem, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConversationReader:
    """Reads conversations under the limits of a deployment."""

    limits: MediaLimits
    policy: FetchPolicy

    def read(self, inputs: Mapping[str, Tree]) -> Conversation:
        """Read `messages`, and media beside them.

        Raises:
            InvalidRequest: something in them cannot be understood; the message names it.
        """
        messages = inputs.get("messages")
        if not isinstance(messages, list | tuple) or not messages:
            raise InvalidRequest(
                "messages must be a list of at least one message", details={"field": "messages"}
            )
        turns = [self._turn(message, f"messages[{n}]") for n, message in enumerate(messages)]
        beside = list(self._beside(inputs))
        if beside:
            place = _last_user(turns)
            turns[place] = turns[place].led_by(beside)
        parts = [part for turn in turns for part in turn.parts]
        items = tuple(part for part in parts if isinstance(part, MediaItem))
        if len(items) > self.limits.max_items:
            raise InvalidRequest(
                f"{len(items)} media items, and at most {self.limits.max_items} are accepted",
                details={"field": "messages"},
            )
        texts = tuple(part for part in parts if isinstance(part, str))
        return Conversation(tuple(turn.templated() for turn in turns), items, texts)

    def _turn(self, message: Tree, where: str) -> _Turn:
        if not isinstance(message, Mapping):
            raise _wrong(where, "a message is an object with role and content")
        role = message.get("role")
        if role not in ROLES:
            raise _wrong(f"{where}.role", f"a role is one of {', '.join(ROLES)}, got {role!r}")
        content = message.get("content")
        carried = {name: message[name] for name in _CARRIED if message.get(name) is not None}
        at = f"{where}.content"
        match content:
            case None:
                parts: list[MediaItem | str] = []
            case str():
                parts = [content]
            case list() | tuple():
                parts = [self._part(part, f"{at}[{n}]") for n, part in enumerate(content)]
            case _:
                raise _wrong(at, "content is text or a list of parts")
        return _Turn("system" if role == "developer" else str(role), parts, carried)

    def _part(self, part: Tree, where: str) -> MediaItem | str:
        if not isinstance(part, Mapping):
            raise _wrong(where, "a content part is an object with a type")
        kind = part.get("type")
        if kind == "text":
            text = part.get("text")
            if not isinstance(text, str):
                raise _wrong(f"{where}.text", "a text part holds text")
            return text
        if not isinstance(kind, str) or kind not in MEDIA_PARTS:
            accepted = ", ".join(("text", *MEDIA_PARTS))
            raise _wrong(f"{where}.type", f"a part's type is one of {accepted}, got {kind!r}")
        if kind not in part:
            raise _wrong(where, f"a part of type {kind} holds '{kind}'")
        return self._item(MEDIA_PARTS[kind], part[kind], f"{where}.{kind}")

    def _beside(self, inputs: Mapping[str, Tree]) -> Iterator[MediaItem]:
        for name, kind in LISTS.items():
            values = inputs.get(name) or ()
            if not isinstance(values, list | tuple):
                raise _wrong(name, "a list of media")
            for number, value in enumerate(values):
                yield self._item(kind, value, f"{name}[{number}]")

    def _item(self, kind: MediaKind, value: Tree, where: str) -> MediaItem:
        return MediaItem(kind, where, source_of(value, where, self.limits, self.policy))


@dataclass(frozen=True, slots=True)
class _Turn:
    role: str
    parts: Sequence[MediaItem | str]
    carried: Mapping[str, Tree]

    def led_by(self, items: Sequence[MediaItem]) -> _Turn:
        return _Turn(self.role, [*items, *self.parts], self.carried)

    def templated(self) -> Mapping[str, object]:
        """Return the turn as chat templates expect it: plain text where there is only text."""
        content: object
        if any(isinstance(part, MediaItem) for part in self.parts):
            content = [
                {"type": part.kind} if isinstance(part, MediaItem) else _text_part(part)
                for part in self.parts
            ]
        else:
            content = "".join(part for part in self.parts if isinstance(part, str))
        return {"role": self.role, "content": content, **self.carried}


def _text_part(text: str) -> Mapping[str, str]:
    return {"type": "text", "text": text}


def _last_user(turns: Sequence[_Turn]) -> int:
    for place in reversed(range(len(turns))):
        if turns[place].role == "user":
            return place
    raise _wrong("messages", "media beside the messages need a user message to belong to")


def _wrong(where: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"{where}: {problem}", details={"field": where})
