"""Compares the indexes with the API server from time to time, and puts right what a watch missed.

A watch that was cut for long starts over with a list, and kopf says nothing of objects that are no
longer in it. A watch that died without a word says nothing at all. Both show here: as an object
that is gone, or as one whose index is behind for longer than a watch takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from omni_operator.controller.client import Client
from omni_operator.controller.indexes import Indexes, Watched
from omni_operator.controller.logs import EventLogger

logger = EventLogger(__name__)

GRACE_SECONDS = 10.0
"""A watch may be this much behind a list."""


class Seen(NamedTuple):
    """One version of one object."""

    uid: str
    version: str


@dataclass(frozen=True, slots=True)
class Gaps:
    """What the index of one kind lacks.

    Attributes:
        missing: objects it does not have, or has in an older version.
        vanished: objects it has and that are gone.
    """

    kind: Watched
    missing: tuple[Mapping[str, Any], ...]
    vanished: tuple[Mapping[str, Any], ...]

    def __bool__(self) -> bool:
        return bool(self.missing or self.vanished)


async def audit(client: Client, indexes: Indexes, namespaces: tuple[str, ...]) -> list[Gaps]:
    """Return what each index still lacks after a grace period.

    Raises:
        ApiError: a kind cannot be listed.
    """
    found: list[Gaps] = []
    for kind in indexes.kinds:
        first = await _gaps(client, indexes, kind, namespaces)
        if not first:
            continue
        await asyncio.sleep(GRACE_SECONDS)
        second = await _gaps(client, indexes, kind, namespaces)
        lasting = Gaps(
            kind,
            tuple(one for one in first.missing if _is_among(one, second.missing)),
            tuple(one for one in first.vanished if _is_among(one, second.vanished)),
        )
        if lasting:
            found.append(lasting)
    return found


def repair(indexes: Indexes, gaps: Gaps) -> None:
    """Put one index right."""
    for manifest in gaps.vanished:
        indexes.drop(gaps.kind, manifest)
    for manifest in gaps.missing:
        indexes.put(gaps.kind, manifest)
    logger.warning(
        "watch had gaps",
        kind=gaps.kind.resource.kind,
        missing=len(gaps.missing),
        vanished=len(gaps.vanished),
    )


async def _gaps(
    client: Client, indexes: Indexes, kind: Watched, namespaces: tuple[str, ...]
) -> Gaps:
    known = {_seen(one): one for one in indexes.all_of(kind)}
    listed: dict[Seen, Mapping[str, Any]] = {}
    for namespace in namespaces or (None,):
        async for one in client.list(kind.resource, namespace, kind.selector):
            if kind.key(one) is not None:
                listed[_seen(one)] = one
    uids = {seen.uid for seen in listed}
    return Gaps(
        kind,
        tuple(one for seen, one in listed.items() if seen not in known),
        tuple(one for seen, one in known.items() if seen.uid not in uids),
    )


def _seen(manifest: Mapping[str, Any]) -> Seen:
    metadata = manifest["metadata"]
    return Seen(metadata["uid"], metadata["resourceVersion"])


def _is_among(manifest: Mapping[str, Any], others: tuple[Mapping[str, Any], ...]) -> bool:
    return _seen(manifest) in {_seen(one) for one in others}
