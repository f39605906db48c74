"""Every error a running pipeline reports, and how each looks on the wire.

A class stands for one reaction of the caller. Its `reason` is a stable word for programs, its
`status` names the gRPC status code (as text, so that importing errors imports no gRPC), and
`retryable` says whether the same request may succeed if sent again unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar

from omni_config.errors import OmniError

_NO_DETAILS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error as data: what crosses process boundaries and reaches the client.

    Attributes:
        reason: stable UPPER_SNAKE word of the error class.
        message: one sentence for people; never parsed.
        retryable: whether sending the same request again may succeed.
        stage: logical stage or instance where it happened; empty when it belongs to none.
        details: further facts by name, text only (`retry_after_seconds`, `field`).
        status: name of the gRPC status code.
    """

    reason: str
    message: str
    retryable: bool = False
    stage: str = ""
    details: Mapping[str, str] = field(default_factory=lambda: _NO_DETAILS)
    status: str = "INTERNAL"


class ServiceError(OmniError):
    """Something failed while the pipeline ran; raised itself for a reason this version lacks."""

    reason: ClassVar[str] = "UNKNOWN"
    status: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, stage: str = "", details: Mapping[str, str] = _NO_DETAILS
    ) -> None:
        super().__init__(message)
        self.message = message
        self.stage = stage
        self.details = dict(details)

    @property
    def info(self) -> ErrorInfo:
        """This error as data."""
        return ErrorInfo(
            reason=self.reason,
            message=self.message,
            retryable=self.retryable,
            stage=self.stage,
            details=self.details,
            status=self.status,
        )


class InvalidRequest(ServiceError):
    """The client must change the request."""

    reason = "INVALID_REQUEST"
    status = "INVALID_ARGUMENT"


class RequestExists(ServiceError):
    """The request id is in use, or its remains have not been cleared yet."""

    reason = "REQUEST_EXISTS"
    status = "ALREADY_EXISTS"


class QueueFull(ServiceError):
    """Admission limits are reached; try again after `retry_after` seconds."""

    reason = "QUEUE_FULL"
    status = "RESOURCE_EXHAUSTED"
    retryable = True

    def __init__(
        self,
        message: str,
        *,
        retry_after: float = 1.0,
        stage: str = "",
        details: Mapping[str, str] = _NO_DETAILS,
    ) -> None:
        stated = details.get("retry_after_seconds", f"{retry_after:g}")
        super().__init__(message, stage=stage, details={**details, "retry_after_seconds": stated})

    @property
    def retry_after(self) -> float:
        """Seconds after which a retry makes sense."""
        return float(self.details["retry_after_seconds"])


class DeadlineExceeded(ServiceError):
    """The request's own deadline passed."""

    reason = "DEADLINE_EXCEEDED"
    status = "DEADLINE_EXCEEDED"


class StageInputTimeout(ServiceError):
    """A stage waited too long for input that an upstream stage had not finished sending."""

    reason = "STAGE_INPUT_TIMEOUT"
    status = "DEADLINE_EXCEEDED"
    retryable = True


class RequestAborted(ServiceError):
    """The client left or asked to stop."""

    reason = "REQUEST_ABORTED"
    status = "CANCELLED"


class StageFailed(ServiceError):
    """A stage's computation or one of its hooks raised for this request."""

    reason = "STAGE_FAILED"
    status = "INTERNAL"


class StepFailed(ServiceError):
    """A step of an engine raised, for this request or for another one of the same step."""

    reason = "STEP_FAILED"
    status = "UNAVAILABLE"
    retryable = True


class InstanceLost(ServiceError):
    """The process that held a part of this request is gone."""

    reason = "INSTANCE_LOST"
    status = "UNAVAILABLE"
    retryable = True


class Unavailable(ServiceError):
    """No ready instance of a stage that this request needs."""

    reason = "UNAVAILABLE"
    status = "UNAVAILABLE"
    retryable = True


class Draining(ServiceError):
    """The instance takes no new requests because it is about to stop."""

    reason = "DRAINING"
    status = "UNAVAILABLE"
    retryable = True


class VersionMismatch(ServiceError):
    """The peer speaks a wire version this build does not."""

    reason = "VERSION_MISMATCH"
    status = "FAILED_PRECONDITION"


class ConfigMismatch(ServiceError):
    """The peer runs another resolved configuration."""

    reason = "CONFIG_MISMATCH"
    status = "FAILED_PRECONDITION"


class StaleIncarnation(ServiceError):
    """The message is from, or for, a process that has been replaced."""

    reason = "STALE_INCARNATION"
    status = "FAILED_PRECONDITION"


class WireFormatError(ServiceError):
    """Bytes that no correct peer sends; the stream that carried them is closed."""

    reason = "WIRE_FORMAT"
    status = "INVALID_ARGUMENT"


class FrameTooLarge(ServiceError):
    """A message is larger than the limits of the wire."""

    reason = "FRAME_TOO_LARGE"
    status = "RESOURCE_EXHAUSTED"


_KNOWN: Mapping[str, type[ServiceError]] = {
    known.reason: known
    for known in (
        InvalidRequest,
        RequestExists,
        QueueFull,
        DeadlineExceeded,
        StageInputTimeout,
        RequestAborted,
        StageFailed,
        StepFailed,
        InstanceLost,
        Unavailable,
        Draining,
        VersionMismatch,
        ConfigMismatch,
        StaleIncarnation,
        WireFormatError,
        FrameTooLarge,
    )
}


class _ForeignError(ServiceError):
    """A reason that a newer peer sent: kept word for word, so that the client still sees it."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message, stage=info.stage, details=info.details)
        self._info = info

    @property
    def info(self) -> ErrorInfo:
        return self._info


def to_info(error: BaseException, *, stage: str = "") -> ErrorInfo:
    """Any exception as data.

    An exception that is no ServiceError was raised by a stage's own code, so it becomes
    STAGE_FAILED with the exception's type in the message. `stage` is used where the error names
    none.
    """
    if isinstance(error, ServiceError):
        info = error.info
        if info.stage or not stage:
            return info
        return replace(info, stage=stage)
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return StageFailed(message, stage=stage).info


def from_info(info: ErrorInfo) -> ServiceError:
    """The exception `to_info` described; an unknown reason is kept word for word."""
    known = _KNOWN.get(info.reason)
    if known is None:
        return _ForeignError(info)
    return known(info.message, stage=info.stage, details=info.details)
