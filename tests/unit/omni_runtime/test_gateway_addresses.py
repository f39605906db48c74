"""Which addresses a group dials for what it was told."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from omni_runtime.gateway_addresses import addresses_of


def resolver(*addresses: str) -> Any:
    """Return a name service that answers with these addresses."""

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        if not addresses:
            raise socket.gaierror(f"{host} is unknown")
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (address, port),
            )
            for address in addresses
        ]

    return getaddrinfo


@pytest.mark.parametrize("target", ["unix:/run/gateway.sock", "10.0.0.1:8001", "gateway:8001"])
async def test_a_plain_target_is_its_own_address(target: str) -> None:
    assert await addresses_of(target) == {target}


@pytest.mark.parametrize(
    ("found", "dialled"),
    [
        pytest.param(["10.0.0.1", "10.0.0.2"], {"10.0.0.1:8001", "10.0.0.2:8001"}, id="several"),
        pytest.param(["10.0.0.1", "fd00::1"], {"10.0.0.1:8001"}, id="two families, one gateway"),
        pytest.param(["fd00::1"], {"[fd00::1]:8001"}, id="only IPv6"),
    ],
)
async def test_a_name_stands_for_every_gateway_behind_it(
    found: list[str], dialled: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolver(*found))
    assert await addresses_of("dns:///gateways.ns.svc:8001") == dialled


async def test_a_name_that_is_not_there_yet_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolver())
    with pytest.raises(OSError, match="unknown"):
        await addresses_of("dns:///gateways.ns.svc:8001")
