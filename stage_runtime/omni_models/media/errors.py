"""What can be wrong with a media item. Each error names the part of the request it is about."""

from __future__ import annotations

from omni_wire.errors import InvalidRequest, ServiceError


class InvalidMedia(InvalidRequest):
    """The item is not what it claims to be, or cannot be decoded."""

    reason = "INVALID_MEDIA"


class MediaTooLarge(InvalidRequest):
    """The item exceeds a limit of this deployment; a smaller one may pass."""

    reason = "MEDIA_TOO_LARGE"


class MediaRefused(InvalidRequest):
    """The item lies where this deployment does not fetch from."""

    reason = "MEDIA_REFUSED"
    status = "PERMISSION_DENIED"


class MediaUnreachable(ServiceError):
    """The server of the item does not answer, or answers that it cannot now."""

    reason = "MEDIA_UNREACHABLE"
    status = "UNAVAILABLE"
    retryable = True


class MediaTimeout(ServiceError):
    """Fetching and decoding took longer than this deployment allows."""

    reason = "MEDIA_TIMEOUT"
    status = "DEADLINE_EXCEEDED"
    retryable = True
