"""Errors as OpenAI's clients read them: a status, a body, and when to try again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse

from omni_gateway.chat.metrics import MADE_AUDIO_SECONDS, MADE_TOKENS
from omni_wire.errors import ErrorInfo, InvalidRequest

CLIENT_CLOSED_REQUEST = 499
STATUSES: Mapping[str, int] = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "FAILED_PRECONDITION": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": CLIENT_CLOSED_REQUEST,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
"""HTTP status by gRPC status; what is missing is 500."""
_BY_REASON: Mapping[str, int] = {
    "BODY_TOO_LARGE": 413,
    "MEDIA_TOO_LARGE": 413,
    "WRONG_MEDIA_TYPE": 415,
    "BODY_TOO_SLOW": 408,
}
_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
_PARAMS: Mapping[str, str] = {"speaker": "voice", "talker_max_tokens": "talker_max_new_tokens"}
"""Names that stages have for fields of the HTTP API."""
_MADE = (MADE_TOKENS, MADE_AUDIO_SECONDS)
_RETRY_AFTER = "1"
_SHOWN_PROBLEMS = 5


def status_of(info: ErrorInfo) -> int:
    """Return the HTTP status of an error."""
    return _BY_REASON.get(info.reason) or STATUSES.get(info.status, 500)


def error_body(info: ErrorInfo) -> dict[str, Any]:
    """Return the body of an error; beside OpenAI's fields it says whether to try again."""
    status = status_of(info)
    kind = "server_error" if status >= 500 else _TYPES.get(status, "invalid_request_error")
    field = info.details.get("field")
    error: dict[str, Any] = {
        "message": info.message,
        "type": kind,
        "param": _PARAMS.get(field, field) if field else None,
        "code": info.reason.lower(),
        "retryable": info.retryable,
    }
    if info.stage:
        error["stage"] = info.stage
    if made := {name: float(info.details[name]) for name in _MADE if name in info.details}:
        error["made"] = {name.removeprefix("made_"): value for name, value in made.items()}
    return {"error": error}


def error_response(info: ErrorInfo, request_id: str = "") -> JSONResponse:
    """Return an error as a response."""
    status = status_of(info)
    headers = {"x-request-id": request_id} if request_id else {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if status in (429, 503):
        headers["retry-after"] = _seconds(info.details.get("retry_after_seconds", _RETRY_AFTER))
    return JSONResponse(error_body(info), status, headers)


def invalid_body(error: ValidationError) -> InvalidRequest:
    """Return what is wrong with a body, the first problems by their path.

    Values are left out: a body may be anything, and of any size.
    """
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    found = [(_path(one["loc"]), one["msg"]) for one in problems]
    lines = [f"{path}: {problem}" if path else problem for path, problem in found]
    more = len(lines) - _SHOWN_PROBLEMS
    shown = "; ".join(lines[:_SHOWN_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")
    path = next((path for path, _ in found if path), "")
    return InvalidRequest(shown, details={"field": path} if path else {})


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        # Keys of a hostile body are as long as it likes.
        path += f"[{part}]" if isinstance(part, int) else f".{str(part)[:64]}"
    return path.lstrip(".")[:512]


def _seconds(text: str) -> str:
    """Return whole seconds, rounded up: HTTP knows no parts of them."""
    return str(max(1, int(-(-float(text) // 1))))
