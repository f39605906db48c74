"""Files of Converse streams, within the bounds of one stream and of all."""

from __future__ import annotations

import hashlib

import pytest

from omni_gateway.uploads import UploadMemory, Uploads
from omni_wire.errors import InvalidRequest, QueueFull
from omni_wire.v1 import gateway_pb2 as pb


def part(name: str, data: bytes, *, last: bool = False) -> pb.UploadPart:
    return pb.UploadPart(upload_id=name, data=data, last=last)


def test_parts_make_a_file() -> None:
    uploads = Uploads(UploadMemory())
    assert uploads.add(part("a", b"he")).bytes == 2
    whole = uploads.add(part("a", b"llo", last=True))
    assert (whole.bytes, whole.sha256) == (5, hashlib.sha256(b"hello").hexdigest())
    assert uploads.complete == {"a": b"hello"}


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        (part("", b"x"), "upload.upload_id"),
        (part("done", b"x"), "upload.upload_id"),
        (part("new", b"x" * 9), "upload.data"),
    ],
)
def test_what_makes_no_sense_is_refused_and_costs_nothing(sent: pb.UploadPart, field: str) -> None:
    memory = UploadMemory()
    uploads = Uploads(memory, max_bytes=8)
    uploads.add(part("done", b"x", last=True))
    with pytest.raises(InvalidRequest) as refused:
        uploads.add(sent)
    assert refused.value.details["field"] == field
    assert memory.held_bytes == 1


def test_all_streams_share_one_memory_and_give_it_back() -> None:
    memory = UploadMemory(limit_bytes=10)
    first, second = Uploads(memory), Uploads(memory)
    first.add(part("a", b"x" * 8))
    with pytest.raises(QueueFull):
        second.add(part("b", b"x" * 3))

    first.close()

    second.add(part("b", b"x" * 3))
    assert memory.held_bytes == 3
    second.close()
    assert memory.held_bytes == 0
