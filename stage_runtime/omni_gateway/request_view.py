"""From a request of the gRPC API to what stages see of it."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import Message

from omni_wire.errors import InvalidRequest, WireFormatError
from omni_wire.messages import RequestView, Tree
from omni_wire.trees import from_proto
from omni_wire.v1 import gateway_pb2 as pb
from omni_wire.v1 import tensor_pb2

OUTPUT_MODALITIES = "output_modalities"
"""Metadata that chooses a request's terminals; absent when the client named no modality."""
TRACE_CONTEXT = "trace_context"
"""Metadata with the W3C trace headers that stages join."""

TIMELINE = "timeline"
"""Metadata in which stages note when they worked on the request; absent where nobody asked."""

SERVED = frozenset(
    (
        "request_id",
        "model",
        "modalities",
        "inputs",
        "params",
        "timeout",
        "labels",
        "stage_events",
    )
)
"""Fields of GenerateRequest that are acted on; any other that is set is refused by name."""


def view_of(
    request: pb.GenerateRequest, model: str, trace_context: Mapping[str, str]
) -> RequestView:
    """Return the request as stages see it.

    Raises:
        InvalidRequest: a field that is not served, another model, or a tree that is none.
    """
    for field, value in request.ListFields():
        if field.name not in SERVED and not _is_empty(value):
            raise _invalid(field.name, "is not served by this pipeline")
    if request.model and request.model != model:
        raise _invalid("model", f"names '{request.model}'; this gateway serves '{model}'")
    metadata: dict[str, Tree] = {"labels": dict(request.labels)} if request.labels else {}
    if request.modalities:
        metadata[OUTPUT_MODALITIES] = list(request.modalities)
    if request.stage_events:
        metadata[TIMELINE] = {}
    if trace_context:
        metadata[TRACE_CONTEXT] = dict(trace_context)
    return RequestView(_trees(request.inputs, "inputs"), _trees(request.params, "params"), metadata)


def _is_empty(value: object) -> bool:
    """Whether a field is set to a message that says nothing, as some clients do."""
    return isinstance(value, Message) and value.ByteSize() == 0


def _trees(nodes: Mapping[str, tensor_pb2.Tree], field: str) -> dict[str, Tree]:
    try:
        return {name: from_proto(node) for name, node in nodes.items()}
    except WireFormatError as error:
        raise _invalid(field, f"hold no tree: {error}") from error


def _invalid(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"{field} {problem}", details={"field": field})
