"""The page, with what browsers must keep it from doing."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import Response
from starlette.routing import Match, Mount
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


class PageMount(Mount):
    """The page at `/`: its files alone, so that other addresses keep answering for themselves."""

    def __init__(self, folder: Path) -> None:
        super().__init__("/", PageFiles(directory=folder, html=True), name="page")
        self._folder = folder

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request asks for one of the files."""
        match, child = super().matches(scope)
        if match is Match.FULL and not self._has(scope["path"]):
            return Match.NONE, {}
        return match, child

    def _has(self, path: str) -> bool:
        if path == "/":
            return True
        name = path.removeprefix("/")
        return ".." not in name and "\0" not in name and (self._folder / name).is_file()
