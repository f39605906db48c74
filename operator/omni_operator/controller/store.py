"""What the operator knows of the cluster: the newest version of every watched object, by pipeline.

Watches, lists and answers to own writes all bring objects, in any order; the version decides, so
an older one never comes back and a deleted object stays deleted. Objects are kept as compressed
JSON and read when their pipeline is looked at: as Python objects they would take many times the
memory.
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from omni_operator.controller.resources import PIPELINES, PODS, Resource, resource_of
from omni_operator.controller.watched import PipelineKey, Watched
from omni_operator.render.manifest import Manifest

REMEMBERED_DELETIONS = 4096
FASTEST = 1

OnChange = Callable[[PipelineKey, Resource], None]
"""Called with a pipeline that something happened to, and the kind of the object it happened to."""


class Entry(NamedTuple):
    """One object.

    Attributes:
        version: its resourceVersion; the API server's grow with every write.
        heard: newest version that its watch has told; 0 when only a list or a write of ours has
            brought it.
        packed: compressed JSON.
    """

    key: PipelineKey
    version: int
    heard: int
    packed: bytes


@dataclass(slots=True)
class Shelf:
    """All objects of one kind, by UID, and the UIDs of each pipeline's."""

    entries: dict[str, Entry] = field(default_factory=dict)
    uids: dict[PipelineKey, dict[str, None]] = field(default_factory=dict)

    def put(self, uid: str, entry: Entry) -> None:
        """Keep an object in place of its earlier version, which another pipeline may have had."""
        self.remove(uid)
        self.entries[uid] = entry
        self.uids.setdefault(entry.key, {})[uid] = None

    def remove(self, uid: str) -> Entry | None:
        """Remove an object; returns what was kept of it."""
        entry = self.entries.pop(uid, None)
        if entry is not None:
            siblings = self.uids[entry.key]
            del siblings[uid]
            if not siblings:
                del self.uids[entry.key]
        return entry

    def read(self, key: PipelineKey) -> Iterator[Manifest]:
        """Yield a pipeline's objects."""
        for uid in tuple(self.uids.get(key, ())):
            yield json.loads(zlib.decompress(self.entries[uid].packed))


class Store:
    """Objects of the watched kinds.

    Args:
        on_change: called for everything that is new.
    """

    def __init__(self, on_change: OnChange = lambda *_: None) -> None:
        self._on_change = on_change
        self._shelves: dict[Resource, Shelf] = {}
        self._kinds: dict[Resource, Watched] = {}
        self._deleted: OrderedDict[str, int] = OrderedDict()

    @property
    def kinds(self) -> tuple[Watched, ...]:
        """The kinds that are kept."""
        return tuple(self._kinds.values())

    def __len__(self) -> int:
        """Number of objects."""
        return sum(len(shelf.entries) for shelf in self._shelves.values())

    def keep(self, kinds: tuple[Watched, ...]) -> None:
        """Keep these kinds from now on, and drop what is known of others."""
        self._kinds = {kind.resource: kind for kind in kinds}
        self._shelves = {one: self._shelves.get(one) or Shelf() for one in self._kinds}

    def pipelines(self) -> tuple[PipelineKey, ...]:
        """Return the key of every known pipeline."""
        return tuple(self._shelves[PIPELINES].uids)

    def pipeline(self, key: PipelineKey) -> Manifest | None:
        """Return the object of a pipeline, None when it does not exist."""
        # Of a predecessor that the watch has not yet told the end of, the newer one is meant.
        found = list(self._shelves[PIPELINES].read(key))
        return found[-1] if found else None

    def of_pipeline(self, key: PipelineKey, resource: Resource) -> Iterator[Manifest]:
        """Yield the objects of one kind that belong to a pipeline."""
        return self._shelves[resource].read(key)

    def owned(self, key: PipelineKey) -> Iterator[Manifest]:
        """Yield every owned object of a pipeline, pods apart."""
        for resource, shelf in self._shelves.items():
            if resource is not PIPELINES and resource is not PODS:
                yield from shelf.read(key)

    def heard(self, resource: Resource, manifest: Mapping[str, Any]) -> None:
        """Take in what a watch tells of an object that exists."""
        self._take(resource, manifest, heard=True)

    def ended(self, resource: Resource, manifest: Mapping[str, Any]) -> None:
        """Take in that a watch has told the end of an object, or that it lost its labels."""
        uid, version = _identity(manifest)
        self._end(resource, uid, version)

    def listed(self, resource: Resource, manifest: Mapping[str, Any]) -> None:
        """Take in an object of a list."""
        self._take(resource, manifest)

    def unlisted(
        self, resource: Resource, namespace: str | None, uids: Collection[str], version: int
    ) -> int:
        """End the objects that a complete list of a namespace, None for all, no longer has.

        Args:
            uids: all that are in the list.
            version: the list's own; what is newer came after it.

        Returns:
            How many there were.
        """
        gone = [
            uid
            for uid, entry in self._shelves[resource].entries.items()
            if uid not in uids
            and entry.version <= version
            and (namespace is None or entry.key[0] == namespace)
        ]
        for uid in gone:
            self._end(resource, uid, version)
        return len(gone)

    def written(self, manifest: Mapping[str, Any]) -> None:
        """Take in an object as it is after a write of ours, so that the next turn sees it."""
        resource = resource_of(manifest)
        if resource in self._kinds:
            self._take(resource, manifest)

    def is_behind(self, resource: Resource, uid: str, version: int) -> bool:
        """Whether the watch has yet to tell this version of an object that still exists."""
        entry = self._shelves[resource].entries.get(uid)
        return entry is not None and entry.heard < version

    def _take(
        self, resource: Resource, manifest: Mapping[str, Any], *, heard: bool = False
    ) -> None:
        kind, shelf = self._kinds[resource], self._shelves[resource]
        uid, version = _identity(manifest)
        key, known = kind.key(manifest), shelf.entries.get(uid)
        if key is None or self._deleted.get(uid, 0) >= version:
            return
        told = max(version if heard else 0, known.heard if known else 0)
        if known is not None and known.version >= version:
            shelf.entries[uid] = known._replace(heard=told)
            return
        text = json.dumps(kind.kept(manifest), separators=(",", ":"))
        shelf.put(uid, Entry(key, version, told, zlib.compress(text.encode(), FASTEST)))
        if known is not None and known.key != key:
            self._on_change(known.key, resource)
        self._on_change(key, resource)

    def _end(self, resource: Resource, uid: str, version: int) -> None:
        """Remove an object, and remember that it is gone: an answer on its way must not bring it
        back. A newer version may, for an object that lost its labels can get them again."""
        self._deleted[uid] = version
        self._deleted.move_to_end(uid)
        if len(self._deleted) > REMEMBERED_DELETIONS:
            self._deleted.popitem(last=False)
        known = self._shelves[resource].entries.get(uid)
        if known is None or known.version > version:
            return
        self._shelves[resource].remove(uid)
        self._on_change(known.key, resource)


def _identity(manifest: Mapping[str, Any]) -> tuple[str, int]:
    metadata = manifest["metadata"]
    return metadata["uid"], int(metadata["resourceVersion"])
