"""uvicorn inside the gateway's own event loop, with its sockets bound beforehand."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from omni_gateway.http_api.limits import HttpLimits
from omni_runtime.logging import EventLogger
from omni_wire.credentials import CredentialsError, ServerTls

logger = EventLogger(__name__)

HEAD_BYTES = 64 << 10
"""Most bytes of a request's head."""
GRACE_SECONDS = 1
LOOK_SECONDS = 30.0
"""How often the certificate's files are read again; they are renewed while a process runs."""


@asynccontextmanager
async def serving_http(
    app: FastAPI, address: str, limits: HttpLimits, certificate: ServerTls | None
) -> AsyncIterator[str]:
    """Serve while the context lasts; yields the address with the port that was chosen.

    Args:
        address: `HOST:PORT`.

    Raises:
        CredentialsError: the address cannot be listened on, or the certificate cannot be read.
    """
    with _bound(address) as listening:
        server = _Server(_config(app, limits, certificate))
        serving = asyncio.create_task(server.serve([listening]))
        following = asyncio.create_task(_follow(server.config, certificate))
        try:
            await server.listening.wait()
            yield f"{address.rpartition(':')[0]}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await serving


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the gateway."""
        yield


class _PatientProtocol(H11Protocol):
    """Closes connections that have no request in progress for long.

    uvicorn itself waits for ever for the head of the first request, and anew with every byte of it.
    """

    def __init__(self, *given: Any, idle_seconds: float, **more: Any) -> None:  # noqa: ANN401
        super().__init__(*given, **more)
        self._idle_seconds = idle_seconds

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401
        super().connection_made(transport)
        self._was_idle = False
        self._look_again()

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self._was_idle:
            self.transport.close()
            return
        self._was_idle = idle
        self._look_again()

    def _look_again(self) -> None:
        self._idle_timer = self.loop.call_later(self._idle_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._idle_timer.cancel()
        super().connection_lost(exc)


def _config(app: FastAPI, limits: HttpLimits, certificate: ServerTls | None) -> uvicorn.Config:
    asks = certificate is not None and certificate.client_authority is not None
    protocol: Any = partial(_PatientProtocol, idle_seconds=limits.idle_seconds)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=int(limits.idle_seconds),
        timeout_graceful_shutdown=GRACE_SECONDS,
        # What a proxy says of its clients is believed by nobody here.
        proxy_headers=False,
        ssl_certfile=certificate.certificate if certificate else None,
        ssl_keyfile=certificate.private_key if certificate else None,
        ssl_ca_certs=_path(certificate.client_authority) if certificate else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if asks else ssl.CERT_NONE,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise CredentialsError(f"the certificate for clients cannot be read: {error}") from error
    return config


def _path(file: Path | None) -> str | None:
    return None if file is None else str(file)


@contextmanager
def _bound(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host.strip("[]"), int(port)), family=family, backlog=1024)
    except (OSError, ValueError) as error:
        raise CredentialsError(f"cannot listen on {address}: {error}") from error
    with listening:
        yield listening


async def _follow(config: uvicorn.Config, certificate: ServerTls | None) -> None:
    """Show new connections the newest certificate."""
    while certificate is not None and config.ssl is not None:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            config.ssl.load_cert_chain(certificate.certificate, certificate.private_key)
            if certificate.client_authority is not None:
                config.ssl.load_verify_locations(certificate.client_authority)
        except (OSError, ssl.SSLError) as error:
            # Half of a renewal, perhaps; what was valid a moment ago is shown until it is whole.
            logger.warning("certificate not renewed", reason=error)
