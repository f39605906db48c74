"""Who may talk to whom: mutual TLS with given certificates, or plaintext where that was asked for.

There is no default. A process that was told nothing does not open a port.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import grpc
from grpc import aio

from omni_config.errors import OmniError

logger = logging.getLogger(__name__)

ChannelOptions: TypeAlias = list[tuple[str, int | str]]


class CredentialsError(OmniError):
    """A certificate or key cannot be read, or an address cannot be listened on."""


@dataclass(frozen=True, slots=True)
class Plaintext:
    """Neither encrypted nor authenticated: for one machine, or a mesh that does both."""


@dataclass(frozen=True, slots=True)
class MutualTls:
    """Both sides show a certificate signed by the same authority.

    Attributes:
        certificate: PEM file with this process's certificate chain.
        private_key: PEM file with its key.
        authority: PEM file with the authority that signs every peer.
        server_name: name to expect in a server's certificate instead of the dialled host; pods are
            dialled by address while their certificates carry a name.
    """

    certificate: Path
    private_key: Path
    authority: Path
    server_name: str = ""


Credentials: TypeAlias = Plaintext | MutualTls


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The server shows a certificate, and asks clients for theirs where it is told to.

    Attributes:
        certificate: PEM file with the server's certificate chain.
        private_key: PEM file with its key.
        client_authority: PEM file with the authority that signs clients; null lets in clients that
            have no certificate.
    """

    certificate: Path
    private_key: Path
    client_authority: Path | None = None


def open_channel(target: str, credentials: Credentials, options: ChannelOptions) -> aio.Channel:
    """A channel to a peer.

    Raises:
        CredentialsError: a file cannot be read.
    """
    if isinstance(credentials, Plaintext):
        return aio.insecure_channel(target, options)
    if credentials.server_name:
        options = [*options, ("grpc.ssl_target_name_override", credentials.server_name)]
    secure = grpc.ssl_channel_credentials(
        root_certificates=_read(credentials.authority),
        private_key=_read(credentials.private_key),
        certificate_chain=_read(credentials.certificate),
    )
    return aio.secure_channel(target, secure, options)


def listen(server: aio.Server, address: str, credentials: Credentials | ServerTls) -> int:
    """Let a server listen on an address; returns its port, 1 for Unix sockets.

    Raises:
        CredentialsError: a file cannot be read, or the address is taken or invalid.
    """
    try:
        if isinstance(credentials, Plaintext):
            return server.add_insecure_port(address)
        return server.add_secure_port(address, _server_credentials(credentials))
    except RuntimeError as error:
        raise CredentialsError(f"cannot listen on {address}: {error}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror}") from error


def _server_credentials(credentials: MutualTls | ServerTls) -> grpc.ServerCredentials:
    """Credentials that follow the files: certificates are renewed while a process runs."""
    current = [_server_files(credentials)]

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        try:
            found = _server_files(credentials)
        except CredentialsError as error:
            # Half of a renewal, perhaps. What was valid a moment ago is used until it is whole.
            logger.warning("certificate not renewed error=%s", error)
            return None
        if found == current[0]:
            return None
        current[0] = found
        return _configuration(found)

    # The stubs do not know that None means unchanged.
    return grpc.dynamic_ssl_server_credentials(
        _configuration(current[0]),
        fetch,  # type: ignore[arg-type]
        require_client_authentication=current[0][2] is not None,
    )


def _server_files(credentials: MutualTls | ServerTls) -> tuple[bytes, bytes, bytes | None]:
    signer = (
        credentials.authority
        if isinstance(credentials, MutualTls)
        else credentials.client_authority
    )
    authority = None if signer is None else _read(signer)
    return _read(credentials.private_key), _read(credentials.certificate), authority


def _configuration(files: tuple[bytes, bytes, bytes | None]) -> grpc.ServerCertificateConfiguration:
    private_key, certificate, authority = files
    return grpc.ssl_server_certificate_configuration([(private_key, certificate)], authority)
