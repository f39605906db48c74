"""Who a message is about and whom it is for.

Names alone cannot tell a restarted process from the one before it, so every identity that outlives
a connection carries a number drawn afresh at each start.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

# Source of a message that no stage produced: the gateway itself.
GATEWAY_SOURCE = "gateway"


class RequestKey(NamedTuple):
    """One life of one request. A tuple, because rows are looked up by it 64 times a step.

    Attributes:
        gateway: incarnation id of the gateway process that admitted it (12 hexadecimal digits).
        request_id: the client's or the gateway's name for it, unique within the gateway's life.
        epoch: number of this attempt, from 0; a resubmission after a lost instance raises it.
    """

    gateway: str
    request_id: str
    epoch: int = 0

    def __str__(self) -> str:
        suffix = f"#{self.epoch}" if self.epoch else ""
        return f"{self.request_id}{suffix}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One running instance of a stage.

    Attributes:
        instance: `stage`, or `stage@rN` for replica N.
        address: gRPC target (`unix:/path`, `dns:///host:port`); empty for an endpoint nobody dials.
        incarnation: positive 63-bit number drawn by the group process when it started.
    """

    instance: str
    address: str
    incarnation: int


# Logical stage name to the instance that serves this request; fixed when the request is admitted.
Bindings: TypeAlias = Mapping[str, Endpoint]


def stage_of(instance: str) -> str:
    """Logical stage name of an instance name: `talker@r1` gives `talker`."""
    return instance.partition("@")[0]


def new_incarnation() -> int:
    """A random positive 63-bit number: 0 never names a process, and int64 fields can hold it."""
    return secrets.randbelow((1 << 63) - 1) + 1


def new_gateway_id() -> str:
    """A random incarnation id of a gateway process: 12 hexadecimal digits."""
    return secrets.token_hex(6)
