"""Fills the store from lists, and finds out by them whether a watch has gone silent.

Lists come before the first turn, so that a restarted operator decides on the whole picture; when a
watch began anew, because watches say nothing of objects that vanished in between; and from time to
time, because a watch that died says nothing at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from omni_operator.controller.client import Client
from omni_operator.controller.logs import EventLogger
from omni_operator.controller.store import Store
from omni_operator.controller.watched import Watched

logger = EventLogger(__name__)

GRACE_SECONDS = 10.0
"""A watch may be this much behind a list."""


class Version(NamedTuple):
    """One version of one object."""

    uid: str
    version: int


class Silence(NamedTuple):
    """A watch that did not tell of changes in time.

    Attributes:
        missed: number of objects.
    """

    kind: Watched
    missed: int


async def fill(
    client: Client, store: Store, kind: Watched, namespaces: tuple[str, ...]
) -> tuple[Version, ...]:
    """Make the store say of one kind what a list says.

    Args:
        namespaces: those to list; all when empty.

    Returns:
        What the watch has not told yet.

    Raises:
        ApiError: the kind cannot be listed.
    """
    behind: list[Version] = []
    for namespace in namespaces or (None,):
        uids, version = set[str](), 0
        async for page in client.pages(kind.resource, namespace, kind.selector):
            version = page.version
            for item in page.items:
                store.listed(kind.resource, item)
                one = Version(item["metadata"]["uid"], int(item["metadata"]["resourceVersion"]))
                uids.add(one.uid)
                if store.is_behind(kind.resource, *one):
                    behind.append(one)
        store.unlisted(kind.resource, namespace, uids, version)
    return tuple(behind)


async def audit(
    client: Client,
    store: Store,
    namespaces: tuple[str, ...],
    grace_seconds: float = GRACE_SECONDS,
) -> list[Silence]:
    """Put every kind right, and return the watches that are behind after a grace period.

    Raises:
        ApiError: a kind cannot be listed.
    """
    behind = {kind: await fill(client, store, kind, namespaces) for kind in store.kinds}
    if any(behind.values()):
        await asyncio.sleep(grace_seconds)
    return list(_silent(store, behind.items()))


def _silent(
    store: Store, behind: Iterable[tuple[Watched, tuple[Version, ...]]]
) -> Iterable[Silence]:
    for kind, versions in behind:
        if kind not in store.kinds:
            continue
        missed = sum(store.is_behind(kind.resource, *one) for one in versions)
        if missed:
            logger.warning("watch is silent", kind=kind.resource.kind, missed=missed)
            yield Silence(kind, missed)
