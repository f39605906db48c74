"""Opening sound and video files from memory, and nothing beyond the file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import av
from av.container import InputContainer

# Playlists and such name further files and URLs, which FFmpeg would open by itself.
DEMUXERS = (
    "aac,ac3,aiff,amr,asf,au,avi,caf,flac,flv,gif,m4v,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,mp3,"
    "mpeg,mpegts,ogg,w64,wav"
)


@contextmanager
def opened(content: bytes) -> Iterator[InputContainer]:
    """A container of a known format around `content`.

    Raises:
        av.error.FFmpegError: the content is of no such format.
    """
    options = {"format_whitelist": DEMUXERS, "protocol_whitelist": "none"}
    file = io.BytesIO(content)
    with av.open(file, "r", metadata_errors="ignore", options=options) as container:
        yield container
