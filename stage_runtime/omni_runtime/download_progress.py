"""How far a download is: a log line every few seconds, and an answer to whoever asks over HTTP."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from omni_runtime.logging import EventLogger

logger = EventLogger(__name__)

LOG_SECONDS = 5.0
PATH = "/progress"


@contextmanager
def telling_progress(directory: Path, total: int, port: int | None) -> Iterator[None]:
    """Tell how much is on disk for the time of the block.

    Args:
        total: bytes that there will be.
        port: where `GET /progress` is answered with `{"bytes": 5, "of": 9}`; null for nowhere.

    Raises:
        OSError: the port is taken.
    """
    done = threading.Event()
    server = None if port is None else _server(directory, total, port)
    threads = [threading.Thread(target=_log, args=(directory, total, done), name="download log")]
    if server is not None:
        threads.append(threading.Thread(target=server.serve_forever, name="download progress"))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if server is not None:
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()


def _log(directory: Path, total: int, done: threading.Event) -> None:
    while not done.wait(LOG_SECONDS):
        have = bytes_in(directory)
        logger.info("downloaded", bytes=have, of=total, percent=100 * have // max(total, 1))


def _server(directory: Path, total: int, port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != PATH:
                self.send_error(404)
                return
            body = json.dumps({"bytes": bytes_in(directory), "of": total}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not worth a line."""

    return ThreadingHTTPServer(("", port), Handler)


def bytes_in(directory: Path) -> int:
    """Return the size of all files below a directory, of unfinished ones what is there."""
    return sum(
        _size(Path(parent) / name) for parent, _, names in os.walk(directory) for name in names
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # an unfinished file gets its final name at any moment
        return 0
