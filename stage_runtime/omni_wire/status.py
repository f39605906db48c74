"""Errors as gRPC statuses with google.rpc details, and back."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc import aio
from grpc_status import rpc_status

from omni_wire.errors import ErrorInfo, ServiceError, Unavailable, from_info

DOMAIN = "omnipipe"
_CODES = {code.name: code for code in grpc.StatusCode}
_STATUS_KEY = "grpc-status-details-bin"
# Keys of google.rpc.ErrorInfo.metadata that carry fields of ours.
_STAGE = "stage"
_RETRYABLE = "retryable"
_CANCELLED = grpc.StatusCode.CANCELLED.name
"""Also the text with which gRPC's servers cancel; a call cancelled on this side has another one."""


async def abort_with(context: aio.ServicerContext[Any, Any], error: ServiceError) -> NoReturn:
    """End a call with an error: its status code, its message, and its reason as a detail."""
    status = rpc_status.to_status(status_of(error.info))
    await context.abort(status.code, status.details or "", status.trailing_metadata or ())


def status_of(info: ErrorInfo) -> status_pb2.Status:
    """An error as google.rpc.Status with ErrorInfo, RetryInfo and BadRequest where they apply."""
    code, _ = _CODES.get(info.status, grpc.StatusCode.INTERNAL).value
    metadata = {**info.details, _RETRYABLE: str(info.retryable).lower()}
    if info.stage:
        metadata[_STAGE] = info.stage
    details: list[Any] = [
        error_details_pb2.ErrorInfo(reason=info.reason, domain=DOMAIN, metadata=metadata)
    ]
    if "retry_after_seconds" in info.details:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(int(float(info.details["retry_after_seconds"]) * 1e9))
        details.append(retry)
    if "field" in info.details:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=info.details["field"], description=info.message
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    status = status_pb2.Status(code=code, message=info.message)
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def error_of(error: aio.AioRpcError | grpc.Call) -> ServiceError:
    """The error that a peer ended a call with.

    A status without our detail, which a proxy or gRPC itself may send, keeps its code and text, but
    for the one by which gRPC ends calls that reach a server while it stops.
    """
    status = error.code().name
    message = error.details() or status
    detail = _detail_of(error)
    if detail is None and status == message == _CANCELLED:
        return Unavailable("the server stopped")
    if detail is None:
        return from_info(ErrorInfo(reason=status, message=message, status=status))
    details = dict(detail.metadata)
    info = ErrorInfo(
        reason=detail.reason,
        message=message,
        retryable=details.pop(_RETRYABLE, "") == "true",
        stage=details.pop(_STAGE, ""),
        details=details,
        status=status,
    )
    return from_info(info)


def _detail_of(error: aio.AioRpcError | grpc.Call) -> error_details_pb2.ErrorInfo | None:
    trailing = dict(error.trailing_metadata() or ())
    raw = trailing.get(_STATUS_KEY)
    if not isinstance(raw, bytes):
        return None
    for packed in status_pb2.Status.FromString(raw).details:
        detail = error_details_pb2.ErrorInfo()
        if packed.Is(detail.DESCRIPTOR) and packed.Unpack(detail) and detail.domain == DOMAIN:
            return detail
    return None
