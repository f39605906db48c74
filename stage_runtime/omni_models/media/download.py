"""Fetching a media item over HTTP without being turned against the network we stand in.

The address that was checked is the address that is connected to, so a name that resolves
differently the second time gains nothing. Every redirect is checked like the first URL. Time and
size are bounded whatever the server does.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin, urlsplit

from omni_models.media.addresses import is_public
from omni_models.media.errors import (
    InvalidMedia,
    MediaRefused,
    MediaTimeout,
    MediaTooLarge,
    MediaUnreachable,
)
from omni_models.media.limits import Deadline, FetchPolicy, MediaLimits

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_REDIRECTS = 5
_CHUNK_BYTES = 1 << 16
_DEFAULT_PORTS = {"http": 80, "https": 443}
_HEADERS = {"User-Agent": "omnipipe", "Accept": "*/*", "Accept-Encoding": "identity"}

Resolve = Callable[[str, int], list[str]]


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host, as the system orders them. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True, slots=True)
class Downloader:
    """Fetches media as the policy allows.

    Attributes:
        resolve: finds the addresses of a host.
        tls: verifies servers.
    """

    limits: MediaLimits
    policy: FetchPolicy
    resolve: Resolve = resolve
    tls: ssl.SSLContext | None = None

    def fetch(self, url: str, where: str, deadline: Deadline) -> bytes:
        """Return the content of a URL.

        Raises:
            MediaRefused: the URL, or one it redirects to, is not fetched from here.
            InvalidMedia: there is nothing at the URL.
            MediaTooLarge: the content is.
            MediaUnreachable: the server does not answer properly; another try may succeed.
            MediaTimeout: the deadline passed.
        """
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._answer(url, where, deadline)
            if isinstance(answer, bytes):
                return answer
            url = urljoin(url, answer)
        raise MediaRefused(
            f"{where}: more than {MAX_REDIRECTS} redirects", details={"field": where}
        )

    def _answer(self, url: str, where: str, deadline: Deadline) -> bytes | str:
        """Return the content, or where it has moved to."""
        parts, port = self._checked(url, where)
        try:
            address = self._address(parts.hostname or "", port, where)
            with self._connected(parts, address, port, deadline.left(where)) as connection:
                target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
                connection.request("GET", target, headers=_HEADERS)
                with closing(connection.getresponse()) as response:
                    answer = self._read(response, where, deadline)
                # A connection that was shut down because time is up looks like one that ended.
                deadline.left(where)
                return answer
        except (OSError, http.client.HTTPException) as error:
            # The socket is shut down when time is up, which shows as any of these.
            deadline.left(where)
            if isinstance(error, TimeoutError):
                raise MediaTimeout(
                    f"{where}: no answer in time", details={"field": where}
                ) from error
            raise MediaUnreachable(
                f"{where}: {parts.hostname} cannot be read: {error}", details={"field": where}
            ) from error

    def _checked(self, url: str, where: str) -> tuple[SplitResult, int]:
        refusal: str | None = None
        try:
            parts = urlsplit(url)
            port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
        except ValueError as error:
            raise InvalidMedia(f"{where}: not a URL: {error}", details={"field": where}) from error
        if parts.scheme not in _DEFAULT_PORTS:
            refusal = f"the scheme '{parts.scheme}' is not fetched"
        elif not parts.hostname:
            refusal = "a URL without a host"
        elif "@" in parts.netloc:
            refusal = "a URL with a user name"
        elif self.policy.hosts and not self.policy.names(parts.hostname):
            refusal = f"the host '{parts.hostname}' is not among those media are fetched from"
        elif not self.policy.hosts and port != _DEFAULT_PORTS[parts.scheme]:
            refusal = f"port {port} is not fetched from"
        if refusal is not None:
            raise MediaRefused(f"{where}: {refusal}", details={"field": where})
        return parts, port

    def _address(self, host: str, port: int, where: str) -> str:
        addresses = self.resolve(host, port)
        if not addresses:
            raise OSError(f"{host} has no address")
        if not self.policy.names(host) and not all(map(is_public, addresses)):
            raise MediaRefused(
                f"{where}: the host '{host}' has a private address", details={"field": where}
            )
        return addresses[0]

    @contextmanager
    def _connected(
        self, parts: SplitResult, address: str, port: int, seconds: float
    ) -> Iterator[http.client.HTTPConnection]:
        """A connection to `address` that speaks as `parts.hostname` and ends after `seconds`."""
        host = parts.hostname or ""
        raw = socket.create_connection((address, port), timeout=seconds)
        # A server that sends a byte now and then never times out; this ends it all the same.
        watchdog = threading.Timer(seconds, _shut_down, (raw,))
        watchdog.daemon = True
        watchdog.start()
        connection = http.client.HTTPConnection(host, port, timeout=seconds)
        try:
            connection.sock = self._secured(raw, host) if parts.scheme == "https" else raw
            yield connection
        finally:
            watchdog.cancel()
            connection.close()
            raw.close()

    def _secured(self, raw: socket.socket, host: str) -> socket.socket:
        return (self.tls or ssl.create_default_context()).wrap_socket(raw, server_hostname=host)

    def _read(
        self, response: http.client.HTTPResponse, where: str, deadline: Deadline
    ) -> bytes | str:
        location = response.headers.get("Location")
        if response.status in (301, 302, 303, 307, 308) and location:
            return location
        if response.status >= 500 or response.status == 429:
            raise MediaUnreachable(
                f"{where}: the server answers {response.status}", details={"field": where}
            )
        if response.status != 200:
            raise InvalidMedia(
                f"{where}: the server answers {response.status}", details={"field": where}
            )
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise InvalidMedia(f"{where}: the answer is compressed", details={"field": where})
        if response.length is not None and response.length > self.limits.max_bytes:
            raise self._too_large(where)
        body = bytearray()
        while chunk := response.read1(_CHUNK_BYTES):
            body += chunk
            if len(body) > self.limits.max_bytes:
                raise self._too_large(where)
            deadline.left(where)
        if response.length:
            raise http.client.IncompleteRead(bytes(body[:0]), response.length)
        return bytes(body)

    def _too_large(self, where: str) -> MediaTooLarge:
        return MediaTooLarge(
            f"{where}: more than the {self.limits.max_bytes} bytes that are accepted",
            details={"field": where},
        )


def _shut_down(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        # The connection is over already, which is all that was wanted.
        return
