"""Certificates: one authority per pipeline, the same bytes every time, renewed before they end."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509 import verification
from hypothesis import given, settings
from hypothesis import strategies as st

from omni_operator.controller.certificates import (
    LIFETIME,
    ROTATION,
    SKEW,
    Period,
    TlsFiles,
    issue,
    tls_secret,
)
from tests.support.objects import read, speech
from tests.support.patience import PATIENT_SECONDS

SECRET = bytes(range(32))
NAME = "demo.default.omnipipe.dev"
NOW = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
DAY = 86_400.0


def files(
    uid: str = "u-1", *, secret: bytes = SECRET, now: float = NOW, role: str = "pods"
) -> TlsFiles:
    return issue(secret, uid, NAME, Period.at(now, uid), role)


def certificate(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def accepts(holder: TlsFiles, authority: TlsFiles, now: float = NOW, name: str = NAME) -> bool:
    """Whether whoever trusts one authority accepts a holder under a name, by the whole of X.509."""
    store = verification.Store([certificate(authority.authority)])
    builder = verification.PolicyBuilder().store(store).time(datetime.fromtimestamp(now, UTC))
    verifier = builder.build_server_verifier(x509.DNSName(name))
    try:
        verifier.verify(certificate(holder.certificate), [])
    except verification.VerificationError:
        return False
    return True


def test_pods_and_operator_of_a_pipeline_accept_each_other_and_nobody_else() -> None:
    pods, operator = files(), files(role="operator")
    assert accepts(pods, operator)
    assert accepts(operator, pods)
    assert pods.private_key != operator.private_key
    assert not accepts(files("u-2"), pods), "a pipeline of another UID"
    assert not accepts(files(secret=bytes(32)), pods), "another operator's secret"
    assert not accepts(pods, pods, name="other.default.omnipipe.dev")


def test_the_same_secret_object_and_period_give_the_same_bytes() -> None:
    assert files() == files(now=NOW + 1.0)
    assert files().authority == files(now=NOW + 400 * DAY).authority, "the authority stays"


@settings(max_examples=25, deadline=None)
@given(uid=st.uuids().map(str), later=st.floats(0.0, 4000 * DAY))
def test_a_certificate_is_valid_through_its_period_and_long_enough_to_be_replaced(
    uid: str, later: float
) -> None:
    now = NOW + later
    period = Period.at(now, uid)
    assert 0.0 <= now - period.begins(uid).timestamp() < ROTATION.total_seconds() + 1e-3
    assert 0.0 < period.seconds_left(now, uid) <= ROTATION.total_seconds()
    held = certificate(issue(SECRET, uid, NAME, period, "pods").certificate)
    assert held.not_valid_before_utc == period.begins(uid).replace(microsecond=0) - SKEW
    left = held.not_valid_after_utc.timestamp() - now
    assert left > (LIFETIME - ROTATION).total_seconds() - 1.0


def test_old_and_new_certificates_are_accepted_side_by_side_after_a_rotation() -> None:
    later = NOW + ROTATION.total_seconds()
    old, new = files(), files(now=later)
    assert old.certificate != new.certificate
    assert old.private_key != new.private_key
    assert accepts(old, new, now=later)
    assert accepts(new, old, now=later)


def test_pipelines_rotate_on_different_days() -> None:
    begins = {Period.at(NOW, f"u-{number}").begins(f"u-{number}") for number in range(20)}
    assert len(begins) == 20


def test_the_secret_of_a_pipeline_belongs_to_it_and_holds_what_kubernetes_calls_its_files() -> None:
    made = tls_secret(read(speech()), SECRET, NOW)
    assert made["type"] == "kubernetes.io/tls"
    assert set(made["data"]) == {"tls.crt", "tls.key", "ca.crt"}
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("OmniPipeline", "u-1")
    held = certificate(base64.b64decode(made["data"]["tls.crt"]))
    names = held.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [NAME]


def test_two_pods_shake_hands_and_a_pod_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    """With OpenSSL itself, which is stricter than a library that reads what it wrote."""
    now = datetime.now(UTC).timestamp()
    ours, theirs = files(now=now), files("u-2", now=now)
    assert _shake_hands(tmp_path, ours, ours) is None
    refused = _shake_hands(tmp_path, ours, theirs)
    assert isinstance(refused, ssl.SSLError)


def _shake_hands(directory: Path, server: TlsFiles, client: TlsFiles) -> Exception | None:
    """Return what a server that asks for certificates has against a client."""
    ends = [
        _context(directory, ssl.PROTOCOL_TLS_SERVER, server, server),
        _context(directory, ssl.PROTOCOL_TLS_CLIENT, client, server),
    ]
    here, there = socket.socketpair()
    for one in (here, there):
        one.settimeout(PATIENT_SECONDS)
    caught: list[Exception] = []

    def serve() -> None:
        try:
            with ends[0].wrap_socket(here, server_side=True) as secured:
                secured.sendall(b"hello")
        except OSError as error:
            caught.append(error)

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        with ends[1].wrap_socket(there, server_hostname=NAME) as secured:
            assert secured.recv(5) in (b"hello", b"")
    except OSError as error:
        caught.append(error)
    serving.join()
    return caught[0] if caught else None


def _context(
    directory: Path, protocol: int, holder: TlsFiles, authority: TlsFiles
) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.verify_mode = ssl.CERT_REQUIRED
    for name, text in (("crt", holder.certificate), ("key", holder.private_key)):
        (directory / name).write_bytes(text)
    context.load_cert_chain(directory / "crt", directory / "key")
    context.load_verify_locations(cadata=authority.authority.decode())
    return context


@pytest.mark.parametrize("length", [1, 60, 200])
def test_a_long_name_is_in_the_certificate_whole(length: int) -> None:
    name = f"{'a' * min(length, 63)}.{'b' * min(length, 63)}.omnipipe.dev"
    made = issue(SECRET, "u", name, Period.at(NOW, "u"), "pods")
    assert accepts(made, made, name=name)
