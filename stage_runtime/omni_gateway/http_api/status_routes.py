"""What runs here: models, the pipeline, health and metrics."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter
from google.protobuf.json_format import MessageToDict
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from omni_gateway.http_api.context import HttpContext
from omni_gateway.http_api.openapi import responses_of

OWNER = "omnipipe"


def status_routes(context: HttpContext) -> APIRouter:
    """Return the routes that need no model to answer."""
    router = APIRouter(tags=["status"])
    chat = context.chat
    model: dict[str, Any] = {
        "id": chat.pipeline.name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": OWNER,
    }

    @router.get("/v1/models", responses=responses_of("application/json"))
    async def models(request: Request) -> Response:
        """List the one model that is served."""
        context.let_in(request)
        return JSONResponse({"object": "list", "data": [model]})

    @router.get("/v1/models/{name:path}", responses=responses_of("application/json"))
    async def named_model(request: Request, name: str) -> Response:
        """Describe a model."""
        context.let_in(request)
        chat.check_model(name)
        return JSONResponse(model)

    @router.get("/v1/pipeline", responses=responses_of("application/json"))
    async def pipeline(request: Request, config: bool = False) -> Response:
        """Tell which stages, groups and instances there are, and which of them are ready."""
        context.let_in(request)
        found = chat.pipeline.describe(chat.coordinator, with_config=config)
        return JSONResponse(MessageToDict(found, preserving_proto_field_name=True))

    @router.get("/metrics", responses=responses_of("text/plain"))
    async def metrics(request: Request) -> Response:
        """Tell Prometheus."""
        context.let_in(request)
        page = generate_latest(chat.coordinator.metrics.registry)
        return Response(page, media_type=CONTENT_TYPE_LATEST)

    _add_probes(router, context)
    return router


def _add_probes(router: APIRouter, context: HttpContext) -> None:
    coordinator = context.chat.coordinator

    @router.get("/livez", responses=responses_of("text/plain"))
    async def livez() -> Response:
        """Say that the gateway serves."""
        return PlainTextResponse("serving")

    @router.get("/readyz", responses=responses_of("application/json"))
    async def readyz() -> Response:
        """Say whether every stage takes requests and every warm-up was answered, and why not."""
        refusal, readiness = coordinator.state.refusal, coordinator.readiness
        ready = refusal is None and readiness.ready
        body = {
            "ready": ready,
            "stages": dict(readiness.reasons),
            "warm_ups": dict(readiness.warm_ups),
        }
        if refusal is not None:
            body["reason"] = refusal.message
        headers = {} if ready else {"retry-after": "1"}
        return JSONResponse(body, 200 if ready else 503, headers)
