"""Certificates for tests, written where a process reads them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from omni_wire.credentials import MutualTls

SERVER_NAME = "stages.omni.test"


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs certificates."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def issue(self, directory: Path, name: str, *, days: int = 1) -> MutualTls:
        """Files of a process that this authority vouches for; negative `days` have expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(name, key, self, days=days)
        directory.mkdir(parents=True, exist_ok=True)
        files = {
            "tls.crt": certificate.public_bytes(serialization.Encoding.PEM),
            "tls.key": key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
            "ca.crt": self.certificate.public_bytes(serialization.Encoding.PEM),
        }
        for file, content in files.items():
            (directory / file).write_bytes(content)
        return MutualTls(
            certificate=directory / "tls.crt",
            private_key=directory / "tls.key",
            authority=directory / "ca.crt",
            server_name=SERVER_NAME,
        )


def authority(name: str = "test authority") -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    return Authority(key, _certificate(name, key, None, days=1))


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: Authority | None, *, days: int
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)]), critical=False)
    )
    return builder.sign(issuer.key if issuer else key, hashes.SHA256())
