"""The reactions only a gateway can ask for; everything else is in `omni_wire.errors`."""

from __future__ import annotations

from omni_wire.errors import QueueFull, ServiceError


class TerminalsHookError(ServiceError):
    """The pipeline's `terminal_stages_fn` raised or answered nonsense; the model's author must fix
    it.
    """

    reason = "TERMINALS_HOOK_FAILED"
    status = "INTERNAL"


class SlowReader(ServiceError):
    """The client left more output unread than the gateway keeps; read faster or ask for less."""

    reason = "SLOW_READER"
    status = "RESOURCE_EXHAUSTED"


class UnknownModel(ServiceError):
    """The request names a model that is not served here; the message names the one that is."""

    reason = "MODEL_NOT_FOUND"
    status = "NOT_FOUND"


class UnknownRequest(ServiceError):
    """The gateway never had the request, or has forgotten it."""

    reason = "REQUEST_NOT_FOUND"
    status = "NOT_FOUND"


class Unauthenticated(ServiceError):
    """The call carries no API key that is accepted here."""

    reason = "INVALID_API_KEY"
    status = "UNAUTHENTICATED"


class RateLimited(QueueFull):
    """The API key's own limits are reached; other keys are served."""

    reason = "RATE_LIMITED"


class BodyTooLarge(ServiceError):
    """The request is larger than this gateway reads."""

    reason = "BODY_TOO_LARGE"
    status = "RESOURCE_EXHAUSTED"


class BodyTooSlow(ServiceError):
    """The request did not arrive within the time this gateway waits for it."""

    reason = "BODY_TOO_SLOW"
    status = "DEADLINE_EXCEEDED"


class WrongMediaType(ServiceError):
    """The request's Content-Type is not what the address takes."""

    reason = "WRONG_MEDIA_TYPE"
    status = "INVALID_ARGUMENT"
