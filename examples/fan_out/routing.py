"""The one condition of the fan-out pipeline: which sides a request wants. Pure.

Routes and fan-in both come from it, so a request can never wait for a side that nothing was sent
to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from omni_wire.errors import InvalidRequest
from omni_wire.identity import RequestKey
from omni_wire.messages import Payload

SIDES = ("total", "largest")


def sides_of(payload: Payload) -> tuple[str, ...]:
    """Return the sides in `params.sides`, or all. Raises InvalidRequest for unknown ones."""
    params = payload.request.params if payload.request is not None else {}
    wanted = params.get("sides", SIDES)
    if not isinstance(wanted, Sequence) or not set(wanted) <= set(SIDES):
        raise InvalidRequest(f"params.sides must be a subset of {list(SIDES)}, got {wanted!r}")
    return tuple(side for side in SIDES if side in wanted)


def route(payload: Payload) -> tuple[str, ...]:
    """Return the targets of `split`."""
    return (*sides_of(payload), "join")


def without_numbers(payload: Payload) -> Payload:
    """Return what `join` needs of `split`: the request, not the numbers."""
    return replace(payload, data={})


def awaited(key: RequestKey, source: str, payload: Payload) -> set[str] | None:
    """Return the sources `join` waits for; only the payload of `split` says which."""
    del key
    return {"split", *sides_of(payload)} if source == "split" else None


def merge(payloads: Mapping[str, Payload]) -> Payload:
    """Return one payload with the answer of every side by name."""
    answers = {source: payload.data for source, payload in payloads.items() if source != "split"}
    return replace(payloads["split"], data=answers)
