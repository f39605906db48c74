"""Certificates for mutual TLS between the pods of a pipeline: pure functions of one secret.

Each pipeline has an authority of its own, so that a pod of one cannot speak to a pod of another.
Authorities are derived from the operator's single secret and the object's UID, and signatures are
deterministic: the same secret, object and period give the same bytes. So nothing but that one
secret is ever read, a restart changes nothing, and a lost Secret is made again as it was.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from omni_operator.api.pipeline import OmniPipeline
from omni_operator.names import tls_secret_name, tls_server_name
from omni_operator.render.manifest import Manifest, manifest

ROTATION = timedelta(days=30)
"""A certificate is replaced this often."""
LIFETIME = timedelta(days=90)
"""A certificate is valid this long: pods that do not read the new one have time to be replaced."""
AUTHORITY_FROM = datetime(2024, 1, 1, tzinfo=UTC)
AUTHORITY_UNTIL = datetime(2124, 1, 1, tzinfo=UTC)
"""An authority lives as long as its pipeline; what limits it is that it is derived."""
SKEW = timedelta(hours=1)
"""Clocks of nodes may be this far behind."""
_CURVE = ec.SECP256R1()
# The order of the group of P-256; a private key is a number below it.
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM texts of one holder of a certificate."""

    certificate: bytes
    private_key: bytes
    authority: bytes


@dataclass(frozen=True, slots=True)
class Period:
    """The time for which one certificate is the current one."""

    number: int

    @classmethod
    def at(cls, now: float, uid: str) -> Period:
        """Return the period of a pipeline at a time in Unix seconds. Pipelines change theirs on
        different days."""
        return cls(int((now + _offset(uid)) // ROTATION.total_seconds()))

    def begins(self, uid: str) -> datetime:
        """Return when it begins."""
        seconds = self.number * ROTATION.total_seconds() - _offset(uid)
        return datetime.fromtimestamp(seconds, UTC)

    def seconds_left(self, now: float, uid: str) -> float:
        """Return the seconds until the next one begins."""
        return Period(self.number + 1).begins(uid).timestamp() - now


def issue(secret: bytes, uid: str, server_name: str, period: Period, role: str) -> TlsFiles:
    """Return a certificate of a pipeline's authority for one role, such as `pods` or `operator`.

    It serves both ends of a connection, as mutual TLS between equals needs.
    """
    authority_key = _derived_key(secret, f"authority {uid}")
    key = _derived_key(secret, f"{role} {uid} {period.number}")
    authority = _authority(authority_key, uid)
    begins = period.begins(uid)
    public = authority_key.public_key()
    builder = (
        _builder(_name(f"{role} of {server_name}"), authority.subject, key.public_key())
        .serial_number(_serial(secret, f"{role} {uid} {period.number}"))
        .not_valid_before(begins - SKEW)
        .not_valid_after(begins + LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(server_name)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(_BOTH_ENDS), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
    )
    return TlsFiles(_pem(_signed(builder, authority_key)), _key_pem(key), _pem(authority))


def tls_secret(pipeline: OmniPipeline, secret: bytes, now: float) -> Manifest:
    """Return the Secret that the pods of a pipeline mount."""
    server_name = tls_server_name(pipeline.name, pipeline.namespace)
    period = Period.at(now, pipeline.uid)
    files = issue(secret, pipeline.uid, server_name, period, "pods")
    data = {
        "tls.crt": files.certificate,
        "tls.key": files.private_key,
        "ca.crt": files.authority,
    }
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    body = {"type": "kubernetes.io/tls", "data": encoded}
    return manifest(pipeline, ("v1", "Secret"), tls_secret_name(pipeline.name), body)


_BOTH_ENDS = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


def _authority(key: ec.EllipticCurvePrivateKey, uid: str) -> x509.Certificate:
    name, public = _name(f"omnipipe pipeline {uid}"), key.public_key()
    builder = (
        _builder(name, name, public)
        .serial_number(1)
        .not_valid_before(AUTHORITY_FROM)
        .not_valid_after(AUTHORITY_UNTIL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_SIGNS_ONLY, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    return _signed(builder, key)


_SIGNS_ONLY = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _derived_key(secret: bytes, purpose: str) -> ec.EllipticCurvePrivateKey:
    # 48 bytes for a 32 byte number: the bias of the remainder is then beyond measure.
    number = int.from_bytes(_derived(secret, purpose, 48), "big")
    return ec.derive_private_key(number % (_ORDER - 1) + 1, _CURVE)


def _serial(secret: bytes, purpose: str) -> int:
    return int.from_bytes(_derived(secret, f"serial {purpose}", 16), "big") >> 1 | 1


def _derived(secret: bytes, purpose: str, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt=None, info=f"omnipipe {purpose}".encode()).derive(
        secret
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    return builder.sign(key, hashes.SHA256(), ecdsa_deterministic=True)


def _name(text: str) -> x509.Name:
    # A common name has at most 64 characters.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _offset(uid: str) -> int:
    """Return seconds within a rotation by which a pipeline's periods are shifted."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(uid.encode())
    return int.from_bytes(digest.finalize()[:8], "big") % int(ROTATION.total_seconds())
