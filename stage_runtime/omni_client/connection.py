"""How a client reaches a gateway: address, encryption, API key, deadlines and retries."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import grpc

from omni_wire.errors import ServiceError

LARGEST_MESSAGE_BYTES = 64 << 20
"""The gateway's own bound on one message; larger files are uploaded in parts."""

CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", LARGEST_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    # By its own defaults a channel lets more than a second pass before it dials again, and answers
    # every try until then with the failure of the first one.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5_000),
]


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates; the system's authorities are trusted when `authority` is null.

    Attributes:
        authority: PEM file with the authority that signs the gateway's certificate.
        certificate: PEM file with this client's certificate, for mutual TLS.
        private_key: PEM file with its key.
        server_name: name to expect in the gateway's certificate instead of the dialled host.
    """

    authority: str | PathLike[str] | None = None
    certificate: str | PathLike[str] | None = None
    private_key: str | PathLike[str] | None = None
    server_name: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        """Return gRPC credentials.

        Raises:
            OSError: a file cannot be read.
        """
        return grpc.ssl_channel_credentials(
            root_certificates=_bytes_of(self.authority),
            private_key=_bytes_of(self.private_key),
            certificate_chain=_bytes_of(self.certificate),
        )


@dataclass(frozen=True, slots=True)
class Retries:
    """When to try again: only errors that say so, and only while nothing was delivered.

    Attributes:
        attempts: tries in all; 1 never tries again. Five outlast the second or two in which a
            Service still leads to a gateway that is gone, or not yet to one that is there.
        first_wait_seconds: before the second try; doubled before each further one, and spread.
        longest_wait_seconds: bound on a wait. A gateway that names a time is obeyed up to it.
    """

    attempts: int = 5
    first_wait_seconds: float = 0.2
    longest_wait_seconds: float = 5.0

    def waits(self) -> Iterator[float]:
        """Yield the wait before each further try, in seconds."""
        wait = self.first_wait_seconds
        for _ in range(self.attempts - 1):
            yield min(wait, self.longest_wait_seconds) * random.uniform(0.5, 1.0)
            wait *= 2

    def wait_for(self, error: ServiceError, planned: float) -> float:
        """Return how long to wait after an error, in seconds."""
        named = error.info.details.get("retry_after_seconds")
        return min(float(named), self.longest_wait_seconds) if named else planned


@dataclass(frozen=True, slots=True)
class Connection:
    """Where and how to connect.

    Attributes:
        target: `host:port`, or any gRPC target such as `unix:/run/gateway.sock`.
        api_key: sent as `authorization: Bearer …`.
        tls: null for plaintext.
        timeout_seconds: default time for a whole request.
    """

    target: str
    api_key: str | None = None
    tls: Tls | None = None
    timeout_seconds: float = 600.0
    retries: Retries = Retries()

    @property
    def options(self) -> list[tuple[str, int | str]]:
        """Channel options."""
        options: list[tuple[str, int | str]] = list(CHANNEL_OPTIONS)
        if self.tls is not None and self.tls.server_name:
            options.append(("grpc.ssl_target_name_override", self.tls.server_name))
        return options

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata of every call."""
        return (("authorization", f"Bearer {self.api_key}"),) if self.api_key else ()


class Attempts:
    """The tries of one request, until one delivers something or its time is over."""

    def __init__(self, request_id: str, timeout_seconds: float, retries: Retries) -> None:
        self.request_id = request_id or f"req-{uuid.uuid4().hex}"
        self.delivered = False
        self._first_id = self.request_id
        self._number = 1
        self._retries = retries
        self._waits = retries.waits()
        self._deadline = time.monotonic() + timeout_seconds

    @property
    def seconds_left(self) -> float:
        """Time left for this request; never below a millisecond."""
        return max(self._deadline - time.monotonic(), 0.001)

    def wait_after(self, error: ServiceError) -> float:
        """Return how long to wait before the next try, which gets an id of its own.

        Raises:
            ServiceError: the error itself, when trying again is not safe or not worth it.
        """
        planned = None if self.delivered or not error.info.retryable else next(self._waits, None)
        if planned is None:
            raise error
        wait = self._retries.wait_for(error, planned)
        if wait >= self.seconds_left:
            raise error
        self._number += 1
        # The gateway may still be clearing the remains of the try that failed.
        self.request_id = f"{self._first_id}-{self._number}"
        return wait


def _bytes_of(path: str | PathLike[str] | None) -> bytes | None:
    return Path(path).read_bytes() if path is not None else None
