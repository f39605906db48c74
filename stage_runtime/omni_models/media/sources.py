"""Where a media item is: in the request, on the network, or in a file."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from omni_models.media.errors import InvalidMedia, MediaRefused, MediaTooLarge
from omni_models.media.limits import FetchPolicy, MediaLimits
from omni_wire.messages import Tree

MediaKind: TypeAlias = Literal["image", "video", "audio"]


@dataclass(frozen=True, slots=True)
class Inline:
    """Bytes that came with the request."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Remote:
    """An http or https URL, not checked any further."""

    url: str


@dataclass(frozen=True, slots=True)
class Local:
    """A file that the policy allows."""

    path: Path


Source: TypeAlias = Inline | Remote | Local


@dataclass(frozen=True, slots=True)
class MediaItem:
    """One item of a request.

    Attributes:
        where: the part of the request it came in, as `messages[0].content[1]`.
    """

    kind: MediaKind
    where: str
    source: Source


def source_of(value: Tree, where: str, limits: MediaLimits, policy: FetchPolicy) -> Source:
    """Return where an item is.

    Args:
        value: bytes, a data URL, an http(s) URL, a file URL or path, or `{"url": …}` or
            `{"data": base64}` around one.

    Raises:
        InvalidMedia: it is none of these.
        MediaTooLarge: it is in the request and too large.
        MediaRefused: the policy does not allow it.
    """
    match value:
        case {"url": inner}:
            return source_of(inner, f"{where}.url", limits, policy)
        case {"data": str(data)}:
            return Inline(_base64(data, f"{where}.data", limits))
        case {"data": inner}:
            return source_of(inner, f"{where}.data", limits, policy)
        case bytes():
            return Inline(_bounded(value, where, limits))
        case str():
            return _from_text(value, where, limits, policy)
    found = sorted(value) if isinstance(value, Mapping) else type(value).__name__
    raise InvalidMedia(
        f"{where}: media are bytes, a URL or a data URL, got {found}", details={"field": where}
    )


def _from_text(text: str, where: str, limits: MediaLimits, policy: FetchPolicy) -> Source:
    # A data URL may have megabytes; nothing else looks at all of it.
    scheme = text[:16].partition(":")[0].lower()
    if scheme == "data":
        return Inline(_data_url(text, where, limits))
    if scheme in ("http", "https"):
        return Remote(text)
    if scheme == "file":
        return _local(Path(unquote(urlsplit(text).path)), where, policy)
    if "://" in text[:64]:
        raise MediaRefused(
            f"{where}: media come by http, https, data or file URLs, not '{scheme}'",
            details={"field": where},
        )
    return _local(Path(text), where, policy)


def _data_url(text: str, where: str, limits: MediaLimits) -> bytes:
    header, comma, body = text.partition(",")
    if not comma:
        raise InvalidMedia(f"{where}: a data URL without a comma", details={"field": where})
    if header.lower().endswith(";base64"):
        return _base64(body, where, limits)
    return _bounded(unquote_to_bytes(body), where, limits)


def _base64(text: str, where: str, limits: MediaLimits) -> bytes:
    if len(text) * 3 // 4 > limits.max_bytes + 2:
        raise _too_large(where, len(text) * 3 // 4, limits)
    try:
        return _bounded(base64.b64decode(text, validate=True), where, limits)
    except (binascii.Error, ValueError) as error:
        raise InvalidMedia(
            f"{where}: not valid base64: {error}", details={"field": where}
        ) from error


def _bounded(content: bytes, where: str, limits: MediaLimits) -> bytes:
    if len(content) > limits.max_bytes:
        raise _too_large(where, len(content), limits)
    return content


def _local(path: Path, where: str, policy: FetchPolicy) -> Local:
    if policy.folder is None:
        raise MediaRefused(
            f"{where}: this deployment reads no local files", details={"field": where}
        )
    folder = policy.folder.resolve()
    # Neither .. nor a link leads out of the folder; whether the file exists is not told before.
    found = (folder / path).resolve()
    if not found.is_relative_to(folder):
        raise MediaRefused(
            f"{where}: the file lies outside the folder for media", details={"field": where}
        )
    return Local(found)


def _too_large(where: str, size: int, limits: MediaLimits) -> MediaTooLarge:
    return MediaTooLarge(
        f"{where}: {size} bytes, and at most {limits.max_bytes} are accepted",
        details={"field": where},
    )
