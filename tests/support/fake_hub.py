"""A hub of models over HTTP, as far as a download sees it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "5f3c9a1b2d4e6f708192a3b4c5d6e7f8091a2b3c"
LARGE_BYTES = 4096
"""A file this large is kept outside git and named by its SHA-256."""


@dataclass(slots=True)
class FakeHub:
    """One repository, and what was asked for.

    Attributes:
        tokens: those that came with questions about the repository; null for a question without.
        cut_once: files whose next answer breaks off in the middle.
        corrupt: files served with one byte changed.
        token: what a request must carry; null lets everybody in.
    """

    repo: str
    files: dict[str, bytes]
    token: str | None = None
    cut_once: set[str] = field(default_factory=set)
    corrupt: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    ranges: dict[str, str] = field(default_factory=dict)
    tokens: set[str | None] = field(default_factory=set)
    endpoint: str = ""

    def description(self, path: str) -> dict[str, Any]:
        """Return what the hub says of a file."""
        content = self.files[path]
        git_id = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        told: dict[str, Any] = {"size": len(content), "blobId": git_id}
        if len(content) >= LARGE_BYTES:
            sha256 = hashlib.sha256(content).hexdigest()
            told["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 130}
        return told

    def etag(self, path: str) -> str:
        """Return the name of a file's content."""
        told = self.description(path)
        return str(told["lfs"]["sha256"] if "lfs" in told else told["blobId"])


@contextmanager
def running(hub: FakeHub) -> Iterator[FakeHub]:
    """Serve the hub on a free port; `endpoint` then says where."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""

    def _answer(self, *, with_body: bool) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        token = self.headers.get("Authorization")
        hub.requests.append(f"{self.command} {path}")
        if hub.repo in path:
            hub.tokens.add(token)
        if hub.token is not None and token != f"Bearer {hub.token}":
            self._send(401, b"{}", {"X-Error-Code": "GatedRepo"}, with_body)
        elif path.startswith(f"/api/models/{hub.repo}/tree/"):
            self._json([self._tree_row(name) for name in hub.files])
        elif path.startswith(f"/api/models/{hub.repo}"):
            self._json(self._information())
        elif found := re.fullmatch(f"/{hub.repo}/resolve/{COMMIT}/(.+)", path):
            self._file(found[1], with_body)
        else:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, with_body)

    def _information(self) -> dict[str, Any]:
        siblings = [{"rfilename": name, **self.hub.description(name)} for name in self.hub.files]
        return {"id": self.hub.repo, "sha": COMMIT, "siblings": siblings}

    def _tree_row(self, name: str) -> dict[str, Any]:
        told = self.hub.description(name)
        row = {"type": "file", "path": name, "size": told["size"], "oid": told["blobId"]}
        if "lfs" in told:
            row["lfs"] = {"oid": told["lfs"]["sha256"], "size": told["size"], "pointerSize": 130}
        return row

    def _file(self, name: str, with_body: bool) -> None:
        hub, content = self.hub, self.hub.files[name]
        if name in hub.corrupt:
            content = bytes([content[0] ^ 1]) + content[1:]
        status, headers = 200, {"ETag": f'"{hub.etag(name)}"', "X-Repo-Commit": COMMIT}
        asked = self.headers.get("Range")
        if asked is not None:
            hub.ranges[name] = asked
            first = int(asked.removeprefix("bytes=").split("-")[0])
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
            status, content = 206, content[first:]
        if with_body and name in hub.cut_once:
            hub.cut_once.remove(name)
            self._send(status, content, headers, with_body, upto=len(content) // 2)
            self.close_connection = True
            return
        self._send(status, content, headers, with_body)

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"}, True)

    def _send(
        self,
        status: int,
        body: bytes,
        headers: Mapping[str, str],
        with_body: bool,
        upto: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body[:upto])
