"""The page, with what browsers must keep it from doing."""

from __future__ import annotations

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

HEADERS = {
    # The page needs nothing but this gateway, and files the user gives it.
    "content-security-policy": "default-src 'self'; img-src 'self' blob: data:; "
    "media-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "permissions-policy": "camera=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    # A new gateway serves a new page: ask each time, and be told when nothing has changed.
    "cache-control": "no-cache",
}


class PageFiles(StaticFiles):
    """Serves the files of a folder with these headers."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response
