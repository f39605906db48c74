"""What is on disk of a download: is it whole, and is each file what the hub says it is?"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

MARKER_FILE = ".omnipipe-download.json"
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file as the hub describes it.

    Attributes:
        size: in bytes.
        sha256: of a large file's content, null for a file that git itself keeps.
        git_id: git's name of the file: the SHA-1 of a header and the content. Null when unknown.
    """

    path: str
    size: int
    sha256: str | None
    git_id: str | None


@dataclass(frozen=True, slots=True)
class Marker:
    """What a directory was filled with, once it is whole.

    Attributes:
        revision: as it was asked for.
        commit: what that was at the time.
        sizes: bytes of each file, by its path.
    """

    repo: str
    revision: str
    commit: str
    sizes: Mapping[str, int]

    def write(self, directory: Path) -> None:
        """Replace the directory's marker in one step."""
        unfinished = directory / f"{MARKER_FILE}.new"
        unfinished.write_text(json.dumps(asdict(self), indent=1))
        os.replace(unfinished, directory / MARKER_FILE)


def is_complete(directory: Path, repo: str, revision: str) -> bool:
    """Is this revision there whole? Contents are not read: they were when the marker was made."""
    try:
        seen = Marker(**json.loads((directory / MARKER_FILE).read_text()))
    except (FileNotFoundError, TypeError, json.JSONDecodeError):
        return False
    if seen.repo != repo or revision not in (seen.revision, seen.commit):
        return False
    return all(_has_size(directory / path, size) for path, size in seen.sizes.items())


def check(directory: Path, file: RemoteFile) -> str | None:
    """Return what is wrong with a file, null when nothing is; a wrong file is removed."""
    path = directory / file.path
    if not path.is_file():
        return f"{file.path} is missing"
    if _has_size(path, file.size) and _has_checksum(path, file):
        return None
    path.unlink()
    return f"{file.path} is not what the hub says it is, and was removed"


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _has_checksum(path: Path, file: RemoteFile) -> bool:
    if file.sha256 is not None:
        return _digest(path, hashlib.sha256()) == file.sha256
    if file.git_id is None:
        return True
    return _digest(path, hashlib.sha1(b"blob %d\0" % file.size)) == file.git_id


def _digest(path: Path, digest: hashlib._Hash) -> str:
    with path.open("rb") as content:
        while block := content.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()
