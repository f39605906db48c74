"""A free port is the same one for IPv4 and IPv6."""

from __future__ import annotations

import socket

import pytest

from omni_wire.listening import listening_socket
from tests.support.patience import PATIENT_SECONDS


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_free_port_answers_on_both_families(host: str) -> None:
    if host == "::1" and not socket.has_dualstack_ipv6():
        host = "127.0.0.1"

    with listening_socket(0) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection((host, port), timeout=PATIENT_SECONDS) as connection:
            assert connection.getpeername()[1] == port
