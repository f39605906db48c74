"""Sockets that servers listen on."""

from __future__ import annotations

import socket


def listening_socket(port: int) -> socket.socket:
    """Return one socket for every address of this host, IPv4 and IPv6 alike; 0 takes a free port.

    With a socket for each family, as asyncio makes them, port 0 stands for two different ports.

    Raises:
        OSError: the port is taken, or is not this user's to take.
    """
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
