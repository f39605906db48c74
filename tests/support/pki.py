"""Certificates and credentials for a control plane that lives as long as a test session."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=1)


class Authority:
    """Issues certificates into one directory, as `<name>.crt` and `<name>.key`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = _subject("test-authority", None)
        builder = _builder(name, name, self._key.public_key())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = builder.add_extension(constraints, critical=True)
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self._write("ca", self._certificate, self._key)

    def issue(
        self,
        name: str,
        common_name: str,
        *,
        organization: str | None = None,
        servers: Sequence[str] = (),
    ) -> None:
        """Write a client certificate, or a server's for host names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(common_name, organization)
        builder = _builder(subject, self._certificate.subject, key.public_key())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if servers else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if servers:
            names = x509.SubjectAlternativeName([_general_name(one) for one in servers])
            builder = builder.add_extension(names, critical=False)
        self._write(name, builder.sign(self._key, hashes.SHA256()), key)

    def _write(
        self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> None:
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        (self.directory / f"{name}.crt").write_bytes(pem)
        (self.directory / f"{name}.key").write_bytes(_private_pem(key))


def write_kubeconfig(directory: Path, authority: Authority, name: str, url: str) -> Path:
    """Write `<name>.kubeconfig` for an issued client certificate."""
    user = {
        "client-certificate": str(authority.directory / f"{name}.crt"),
        "client-key": str(authority.directory / f"{name}.key"),
    }
    server = {"server": url, "certificate-authority": str(authority.directory / "ca.crt")}
    return _write_kubeconfig(directory / f"{name}.kubeconfig", server, user)


def kubeconfig_through(directory: Path, name: str, url: str) -> Path:
    """Write `<name>.kubeconfig` for a plain HTTP address that adds credentials itself."""
    return _write_kubeconfig(directory / f"{name}.kubeconfig", {"server": url}, {})


def write_service_account_key(directory: Path) -> None:
    """Write the pair that signs service account tokens, as `sa.key` and `sa.pub`."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (directory / "sa.key").write_bytes(_private_pem(key))
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (directory / "sa.pub").write_bytes(public)


def _write_kubeconfig(path: Path, server: dict[str, str], user: dict[str, str]) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": server}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path.write_text(yaml.safe_dump(content))
    return path


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )


def _subject(common_name: str, organization: str | None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization is not None:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _general_name(server: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(server))
    except ValueError:
        return x509.DNSName(server)


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
