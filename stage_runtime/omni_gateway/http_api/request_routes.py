"""What became of the latest requests, and when each stage worked on them."""

from __future__ import annotations

from itertools import islice

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from omni_gateway.errors import UnknownRequest
from omni_gateway.http_api.context import HttpContext
from omni_gateway.http_api.openapi import responses_of

LISTED_REQUESTS = 50


def request_routes(context: HttpContext) -> APIRouter:
    """Return the routes about requests of the past minutes."""
    router = APIRouter(tags=["status"])
    timelines = context.chat.coordinator.timelines

    @router.get("/v1/requests", responses=responses_of("application/json"))
    async def requests(request: Request) -> Response:
        """List the latest requests, the latest first."""
        context.let_in(request)
        latest = islice(timelines.latest(), LISTED_REQUESTS)
        return JSONResponse({"requests": [one.tree() for one in latest]})

    @router.get("/v1/requests/{request_id}", responses=responses_of("application/json"))
    async def timeline(request: Request, request_id: str) -> Response:
        """Tell when each stage worked on a request, in seconds since its admission."""
        context.let_in(request)
        found = timelines.get(request_id)
        if found is None:
            raise UnknownRequest("this gateway knows no such request, or no longer")
        return JSONResponse(found.tree())

    return router
