"""Which requests are sent in parts."""

import pytest

from omni_client.uploads import INLINE_BYTES, needs_upload
from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.v1 import tensor_pb2


def with_file(size: int) -> pb.GenerateRequest:
    part = pb.ContentPart(audio=pb.Media(data=bytes(size)))
    return pb.GenerateRequest(messages=[pb.Message(role="user", content=[part])])


def with_inputs(size: int) -> pb.GenerateRequest:
    request = pb.GenerateRequest()
    request.inputs["sound"].CopyFrom(tensor_pb2.Tree(binary=bytes(size)))
    return request


@pytest.mark.parametrize(
    ("request_", "in_parts"),
    [
        pytest.param(with_file(100), False, id="small file"),
        pytest.param(with_file(INLINE_BYTES), True, id="large file"),
        pytest.param(with_inputs(INLINE_BYTES), False, id="large inputs, which are no files"),
    ],
)
def test_only_large_files_go_in_parts(request_: pb.GenerateRequest, in_parts: bool) -> None:
    assert needs_upload(request_) is in_parts
