"""The HTTP application, put together."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from omni_gateway.http_api.access_log import AccessLog, HttpMetrics
from omni_gateway.http_api.chat_request import ChatCompletionRequest
from omni_gateway.http_api.chat_routes import chat_routes
from omni_gateway.http_api.context import HttpContext
from omni_gateway.http_api.errors import CLIENT_CLOSED_REQUEST, STATUSES, error_response
from omni_gateway.http_api.limits import BodyLimits, HttpLimits
from omni_gateway.http_api.openapi import describe
from omni_gateway.http_api.page_files import PageMount
from omni_gateway.http_api.request_routes import request_routes
from omni_gateway.http_api.speech_routes import SpeechRequest, speech_routes
from omni_gateway.http_api.status_routes import status_routes
from omni_gateway.http_api.transcription_routes import TranscriptionRequest, transcription_routes
from omni_runtime.logging import EventLogger
from omni_wire.errors import ErrorInfo, InvalidRequest, ServiceError

logger = EventLogger(__name__)

PAGE = Path(__file__).parent.parent / "page"
"""Static files served at `/`, where they are installed."""
MODELS = (ChatCompletionRequest, SpeechRequest, TranscriptionRequest)
_GRPC_STATUS = {status: name for name, status in STATUSES.items()}


def http_app(context: HttpContext, limits: HttpLimits, page: Path = PAGE) -> FastAPI:
    """Return the application."""
    app = FastAPI(
        title="omnipipe",
        version="1",
        description="OpenAI's API over a pipeline that sees, hears and speaks.",
        redoc_url=None,
    )
    for routes in (
        chat_routes,
        speech_routes,
        transcription_routes,
        status_routes,
        request_routes,
    ):
        app.include_router(routes(context))
    describe(app, MODELS)
    if page.is_dir():
        app.router.routes.append(PageMount(page))
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _query_error)
    app.add_exception_handler(ClientDisconnect, _client_left)
    app.add_exception_handler(Exception, _unexpected)
    app.add_middleware(BodyLimits, limits=limits)
    metrics = HttpMetrics(context.chat.coordinator.metrics.registry)
    app.add_middleware(AccessLog, metrics=metrics)
    return app


async def _service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError), "registered for it"
    return error_response(error.info)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for it"
    status = _GRPC_STATUS.get(error.status_code, "INVALID_ARGUMENT")
    reason = error.detail.upper().replace(" ", "_")
    response = error_response(ErrorInfo(reason=reason, message=error.detail, status=status))
    response.status_code = error.status_code
    response.headers.update(error.headers or {})
    return response


async def _query_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError), "registered for it"
    found = error.errors()[0]
    field = str(found["loc"][-1])
    return error_response(InvalidRequest(f"{field}: {found['msg']}", details={"field": field}).info)


async def _client_left(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _unexpected(request: Request, error: Exception) -> Response:
    info = ErrorInfo(reason="INTERNAL", message="the gateway failed; its log tells more")
    return error_response(info)
