"""API keys as files hold them: names and hashes, never the keys themselves.

A file has a line per key, `NAME sha256:HEX [concurrency=N] [requests_per_minute=N]`. A directory,
as a mounted Secret is one, has a file per key, named after it; it holds the same without the name,
or the key itself where whoever made the Secret did not hash it. Keys are long and random, so one
round of SHA-256 is enough: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from omni_config.errors import OmniError

SCHEME = "sha256:"
PREFIX = "omni-"
HEX_DIGITS = 64
_LIMITS = ("concurrency", "requests_per_minute")


class InvalidKeyFile(OmniError):
    """A line of a key file makes no sense; the message names it and never shows it."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key that is accepted.

    Attributes:
        name: whose it is, in logs and metrics.
        digest: SHA-256 of the key, as hexadecimal text.
        concurrency: most unfinished requests at once; null for no limit.
        requests_per_minute: null for no limit.
    """

    name: str
    digest: str
    concurrency: int | None = None
    requests_per_minute: int | None = None

    @property
    def line(self) -> str:
        """The key's line in a file."""
        limits = {name: getattr(self, name) for name in _LIMITS}
        words = [f"{name}={value}" for name, value in limits.items() if value is not None]
        return " ".join([self.name, SCHEME + self.digest, *words])


def new_key() -> str:
    """Return a key that nobody can guess."""
    return PREFIX + secrets.token_urlsafe(32)


def digest_of(key: str) -> str:
    """Return the SHA-256 of a key, as hexadecimal text."""
    return hashlib.sha256(key.encode()).hexdigest()


def read_keys(path: Path) -> Mapping[str, ApiKey]:
    """Return the keys of a file or directory, by digest.

    Raises:
        InvalidKeyFile: it cannot be read, a line makes no sense, or a name comes twice.
    """
    try:
        keys = list(_directory_keys(path) if path.is_dir() else _file_keys(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidKeyFile(f"{path}: cannot be read: {error}") from error
    names = [key.name for key in keys]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidKeyFile(f"{path}: {', '.join(twice)} has several keys; names are unique")
    return {key.digest: key for key in keys}


def parse_key(name: str, words: list[str], where: str) -> ApiKey:
    """Return the key that the words after its name describe.

    Raises:
        InvalidKeyFile: they make no sense.
    """
    digest = words[0].removeprefix(SCHEME).lower() if words else ""
    if not words or not words[0].startswith(SCHEME) or not _is_digest(digest):
        raise InvalidKeyFile(f"{where}: expected NAME {SCHEME}<{HEX_DIGITS} hexadecimal digits>")
    limits: dict[str, int] = {}
    for word in words[1:]:
        limit, _, value = word.partition("=")
        if limit not in _LIMITS or not value.isascii() or not value.isdigit() or int(value) < 1:
            raise InvalidKeyFile(f"{where}: a limit is {' or '.join(_LIMITS)}, as {_LIMITS[0]}=8")
        limits[limit] = int(value)
    return ApiKey(name, digest, **limits)


def _file_keys(path: Path) -> Iterator[ApiKey]:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.partition("#")[0].split()
        if words:
            yield parse_key(words[0], words[1:], f"{path}:{number}")


def _directory_keys(path: Path) -> Iterator[ApiKey]:
    # Names with a dot in front are how the kubelet swaps the files of a Secret.
    for file in sorted(path.iterdir()):
        if file.name.startswith(".") or not file.is_file():
            continue
        text = file.read_text().strip()
        if text.startswith(SCHEME):
            yield parse_key(file.name, text.split(), str(file))
        elif text:
            yield ApiKey(file.name, digest_of(text))


def _is_digest(text: str) -> bool:
    return len(text) == HEX_DIGITS and set(text) <= set("0123456789abcdef")
