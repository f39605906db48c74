"""From what a group was told about its gateways to the addresses it dials.

A gRPC channel to a DNS name talks to one of the addresses behind it. A group needs a session with
every gateway, so names are resolved here, again and again, and each address is dialled by itself.
"""

from __future__ import annotations

import asyncio
import socket

_DNS = "dns:///"


def is_name(target: str) -> bool:
    """Return whether a target is a DNS name that may stand for several gateways."""
    return target.startswith(_DNS)


async def addresses_of(target: str) -> frozenset[str]:
    """Return the addresses a target stands for now; a target that is no name is its own.

    Of a name with addresses of both families only one family is used: a gateway with two addresses
    would otherwise be dialled twice.

    Raises:
        OSError: the name cannot be resolved now; it may not exist yet.
    """
    if not is_name(target):
        return frozenset((target,))
    host, _, port = target.removeprefix(_DNS).rpartition(":")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    by_family = {
        family: frozenset(
            f"[{address[0]}]:{port}" if family == socket.AF_INET6 else f"{address[0]}:{port}"
            for other, _, _, _, address in found
            if other == family
        )
        for family in (socket.AF_INET, socket.AF_INET6)
    }
    return by_family[socket.AF_INET] or by_family[socket.AF_INET6]
