"""Large files travel in parts beside the request, small ones inside it."""

from __future__ import annotations

from collections.abc import Iterator

from omni_wire.v1 import gateway_pb2 as pb

INLINE_BYTES = 16 << 20
"""Requests up to this size go as one message; it leaves room below the gateway's bound."""
PART_BYTES = 512 << 10
"""Size of a part: larger messages stall the event loop of either end."""


def needs_upload(request: pb.GenerateRequest) -> bool:
    """Return whether a request is too large for one message and has files that can go beside it."""
    return request.ByteSize() > INLINE_BYTES and any(True for _ in _media(request))


def upload_messages(request: pb.GenerateRequest) -> Iterator[pb.ConverseRequest]:
    """Yield every file of a request in parts, then the request that names them."""
    lean = pb.GenerateRequest()
    lean.CopyFrom(request)
    for index, media in enumerate(_media(lean)):
        if not media.data:
            continue
        upload_id, data = f"file-{index}", media.data
        media.upload_id = upload_id
        for start in range(0, len(data), PART_BYTES):
            part = pb.UploadPart(
                upload_id=upload_id,
                data=data[start : start + PART_BYTES],
                last=start + PART_BYTES >= len(data),
            )
            yield pb.ConverseRequest(upload=part)
    yield pb.ConverseRequest(generate=lean)


def _media(request: pb.GenerateRequest) -> Iterator[pb.Media]:
    for message in request.messages:
        for part in message.content:
            kind = part.WhichOneof("content")
            if kind in ("image", "audio", "video"):
                yield getattr(part, kind)
