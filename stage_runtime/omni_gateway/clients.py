"""How clients come in: who is let in, what they are shown, and the flags that say so."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field
from pathlib import Path

from omni_config.errors import OmniError
from omni_gateway.access.guard import Guard
from omni_gateway.http_api.limits import HttpLimits, limits_within
from omni_gateway.memory import usable_memory_bytes
from omni_wire.credentials import Credentials, MutualTls, Plaintext, ServerTls

UNIX = "unix:"
LOOPBACK = (UNIX, "127.0.0.1:", "localhost:", "[::1]:")
"""Beginnings of addresses that other machines cannot reach."""


@dataclass(frozen=True, slots=True)
class Clients:
    """How clients of the API come in.

    Attributes:
        guard: lets them in by their keys.
        credentials: of the gRPC API; null for the same as groups.
        certificate: what they are shown over HTTP; null for plaintext.
        limits: of HTTP requests.
    """

    guard: Guard = field(default_factory=lambda: Guard(None))
    credentials: Plaintext | ServerTls | None = None
    certificate: ServerTls | None = None
    limits: HttpLimits = field(default_factory=lambda: limits_within(usable_memory_bytes()))

    def grpc_credentials(self, address: str, groups: Credentials) -> Credentials | ServerTls:
        """Return the credentials of one address of the gRPC API.

        Groups of this machine come by Unix sockets, whose folder protects them.
        """
        if self.credentials is None or address.startswith(UNIX):
            return groups
        return self.credentials


def add_client_flags(parser: ArgumentParser) -> None:
    """Declare the flags."""
    add = parser.add_argument
    add(
        "--http",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="address of the OpenAI-compatible HTTP API; may be repeated",
    )
    add("--api-keys", type=Path, metavar="PATH", help="file or directory with accepted API keys")
    add("--no-auth", action="store_true", help="let every client in")
    add("--client-tls-certificate", type=Path, metavar="PEM", help="certificate shown to clients")
    add("--client-tls-key", type=Path, metavar="PEM", help="its private key")
    add(
        "--client-tls-ca",
        type=Path,
        metavar="PEM",
        help="authority that signs clients; without it they need no certificate",
    )
    add(
        "--plaintext-clients",
        action="store_true",
        help="plaintext for clients where others can reach them, while groups use TLS",
    )
    add(
        "--max-body-bytes",
        type=int,
        metavar="N",
        help="largest body of an HTTP request; else 128 MiB, or an eighth of the memory if less",
    )


def clients_of(given: Namespace, groups: Credentials) -> Clients:
    """Return what the flags say.

    Raises:
        OmniError: they leave open who is let in, or expose plaintext unasked.
    """
    if given.api_keys is None and not given.no_auth:
        raise OmniError("say who is let in: --api-keys PATH, or --no-auth for everybody")
    if given.api_keys is not None and given.no_auth:
        raise OmniError("--api-keys and --no-auth exclude each other")
    certificate = _certificate(given)
    plaintext = certificate is None and not given.insecure and not given.plaintext_clients
    exposed = [one for one in given.http if not one.startswith(LOOPBACK)]
    if exposed and plaintext:
        raise OmniError(
            f"{', '.join(exposed)} can be reached from other machines: give a certificate "
            "(--client-tls-certificate, --client-tls-key), or --plaintext-clients when the "
            "network is trusted"
        )
    return Clients(
        guard=Guard(given.api_keys),
        credentials=_grpc_credentials(given, certificate, groups),
        certificate=certificate,
        limits=limits_within(usable_memory_bytes(), given.max_body_bytes),
    )


def _certificate(given: Namespace) -> ServerTls | None:
    files = (given.client_tls_certificate, given.client_tls_key)
    if any(files) and not all(files):
        raise OmniError("--client-tls-certificate and --client-tls-key belong together")
    if not all(files):
        if given.client_tls_ca is not None:
            raise OmniError("--client-tls-ca needs --client-tls-certificate and --client-tls-key")
        return None
    return ServerTls(*files, client_authority=given.client_tls_ca)


def _grpc_credentials(
    given: Namespace, certificate: ServerTls | None, groups: Credentials
) -> Plaintext | ServerTls | None:
    if not given.control and isinstance(groups, MutualTls):
        if certificate is not None or given.plaintext_clients:
            raise OmniError("groups share the clients' addresses; give theirs by --control")
        return None
    if given.plaintext_clients:
        return Plaintext()
    return certificate
