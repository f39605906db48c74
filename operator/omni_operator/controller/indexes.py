"""What the watches have seen: kopf's indexes, by pipeline, with only the fields that are read.

Objects are kept as JSON text and read when their pipeline is looked at: as Python objects they
would take five times the memory.

kopf fills an index for every kind before it lets any event through, so that a restarted operator
decides on the whole picture. What kopf does not tell (objects that vanished while a watch was cut)
is found by `omni_operator.controller.audit`.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import kopf
from kopf._cogs.structs.ids import HandlerId  # types of public arguments without public names
from kopf._core.engines.indexing import OperatorIndexers

from omni_operator.controller.resources import PIPELINES, PODS, Resource, resource_of
from omni_operator.names import APP_MANAGED_BY, FIELD_MANAGER, LABEL_PIPELINE
from omni_operator.render.manifest import Manifest

PipelineKey = tuple[str, str]
"""Namespace and name of an OmniPipeline."""

MANAGED = f"{APP_MANAGED_BY}={FIELD_MANAGER}"
"""Label selector of everything the operator owns."""

REMEMBERED_DELETIONS = 4096

OnChange = Callable[[PipelineKey, Resource], None]
"""Called with a pipeline that something happened to, and the kind of the object it happened to."""


def pipeline_of(manifest: Mapping[str, Any]) -> PipelineKey | None:
    """Return the pipeline an object belongs to, None for objects of nobody."""
    metadata = manifest["metadata"]
    name = (metadata.get("labels") or {}).get(LABEL_PIPELINE)
    return (metadata.get("namespace") or "", name) if name else None


def key_of(manifest: Mapping[str, Any]) -> PipelineKey:
    """Return the key of an OmniPipeline."""
    return manifest["metadata"].get("namespace") or "", manifest["metadata"]["name"]


@dataclass(frozen=True, slots=True)
class Watched:
    """A kind that is watched.

    Attributes:
        project: what is kept of an object.
        selector: label selector of the watch, empty for all.
    """

    resource: Resource
    project: Callable[[Mapping[str, Any]], Manifest]
    selector: str = MANAGED

    @property
    def id(self) -> HandlerId:
        """Name of its index."""
        return HandlerId(f"{self.resource.plural}.{self.resource.group or 'core'}")

    def key(self, manifest: Mapping[str, Any]) -> PipelineKey | None:
        """Return the pipeline that an object of this kind concerns."""
        return key_of(manifest) if self.resource is PIPELINES else pipeline_of(manifest)

    def text(self, manifest: Mapping[str, Any]) -> bytes:
        """Return what is kept of an object, as JSON."""
        # Items of a list come without their kind.
        named = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **manifest}
        return json.dumps(self.project(named), separators=(",", ":")).encode()


def whole(manifest: Mapping[str, Any]) -> Manifest:
    """Keep an object, but not who wrote which field of it."""
    kept = dict(manifest)
    kept["metadata"] = {
        key: value for key, value in manifest["metadata"].items() if key != "managedFields"
    }
    return kept


def with_managers(manifest: Mapping[str, Any]) -> Manifest:
    """Keep an object whole; status and operator are left out of who wrote which field."""
    kept = dict(manifest)
    fields = manifest["metadata"].get("managedFields") or ()
    kept["metadata"] = {
        **manifest["metadata"],
        "managedFields": [one for one in fields if not one.get("subresource")],
    }
    return kept


def pod(manifest: Mapping[str, Any]) -> Manifest:
    """Keep of a pod what rollouts and status read."""
    spec, metadata = manifest.get("spec") or {}, manifest["metadata"]
    wanted = (
        "name",
        "namespace",
        "uid",
        "labels",
        "annotations",
        "creationTimestamp",
        "deletionTimestamp",
        "ownerReferences",
        "resourceVersion",
    )
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {key: metadata[key] for key in wanted if key in metadata},
        "spec": {
            "nodeName": spec.get("nodeName"),
            "containers": [{"name": one["name"]} for one in spec.get("containers") or ()],
        },
        "status": manifest.get("status") or {},
    }


def watched(resources: Iterable[Resource]) -> tuple[Watched, ...]:
    """Return the watches for owned kinds, pods and pipelines."""
    owned = [Watched(one, whole) for one in resources]
    return Watched(PIPELINES, with_managers, selector=""), Watched(PODS, pod), *owned


class Indexes:
    """Read access to what is indexed, and the kopf registry that fills it."""

    def __init__(self, kinds: tuple[Watched, ...], on_change: OnChange) -> None:
        self.kinds = kinds
        self.indexers = OperatorIndexers()
        self._newest: dict[str, tuple[int, bytes]] = {}
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self._on_change = on_change

    def registry(self) -> kopf.OperatorRegistry:
        """Return handlers for one run of kopf: an index and an event handler per kind."""
        registry = kopf.OperatorRegistry()
        for kind in self.kinds:
            at = (kind.resource.group, kind.resource.version, kind.resource.plural)
            kopf.index(*at, id=kind.id, registry=registry)(self._indexing(kind))
            kopf.on.event(*at, id=kind.id, registry=registry)(self._noticing(kind))
        return registry

    def pipelines(self) -> Iterator[PipelineKey]:
        """Yield the key of every known pipeline."""
        yield from cast(Iterator[PipelineKey], iter(self._index(PIPELINES)))

    def pipeline(self, key: PipelineKey) -> Manifest | None:
        """Return the object of a pipeline, None when it does not exist."""
        return next(self._values(PIPELINES, key), None)

    def of_pipeline(self, key: PipelineKey, resource: Resource) -> Iterator[Manifest]:
        """Yield the objects of one kind that belong to a pipeline."""
        return self._values(resource, key)

    def owned(self, key: PipelineKey) -> Iterator[Manifest]:
        """Yield every owned object of a pipeline, pods apart."""
        for kind in self.kinds:
            if kind.resource is not PIPELINES and kind.resource is not PODS:
                yield from self._values(kind.resource, key)

    def all_of(self, kind: Watched) -> Iterator[Manifest]:
        """Yield everything that is indexed of a kind."""
        for store in self.indexers[kind.id].index.values():
            yield from map(json.loads, store)

    def put(self, kind: Watched, manifest: Mapping[str, Any]) -> None:
        """Take in an object that a watch has missed."""
        if self._store(kind, manifest):
            self._on_change(kind.key(manifest) or ("", ""), kind.resource)

    def written(self, manifest: Mapping[str, Any]) -> None:
        """Take in an object as it is after a write of ours, so that the next turn sees it."""
        resource = resource_of(manifest)
        kind = next((one for one in self.kinds if one.resource is resource), None)
        if kind is not None:
            self._store(kind, manifest)

    def drop(self, kind: Watched, manifest: Mapping[str, Any]) -> None:
        """Forget an object whose end a watch has missed."""
        self._forget(manifest["metadata"]["uid"])
        self.indexers[kind.id].discard(self.indexers.make_key(cast(Any, manifest)))
        key = kind.key(manifest)
        if key is not None:
            self._on_change(key, kind.resource)

    def _store(self, kind: Watched, manifest: Mapping[str, Any]) -> bool:
        key, metadata = kind.key(manifest), manifest["metadata"]
        if key is None or metadata["uid"] in self._deleted:
            return False
        version, text = int(metadata["resourceVersion"]), kind.text(manifest)
        self._newest[metadata["uid"]] = version, text
        self.indexers[kind.id].replace(self.indexers.make_key(cast(Any, manifest)), {key: text})
        return True

    def _text(self, kind: Watched, body: Mapping[str, Any]) -> bytes:
        """Return what to index of an event's object: our own write, where the event is older."""
        uid = body["metadata"]["uid"]
        newest = self._newest.get(uid)
        if newest is not None and newest[0] > int(body["metadata"]["resourceVersion"]):
            return newest[1]
        self._newest.pop(uid, None)
        return kind.text(body)

    def _forget(self, uid: str) -> None:
        """Remember that an object is gone, so that an answer on its way does not bring it back."""
        self._newest.pop(uid, None)
        self._deleted[uid] = None
        if len(self._deleted) > REMEMBERED_DELETIONS:
            self._deleted.popitem(last=False)

    def _index(self, resource: Resource) -> Mapping[Any, Any]:
        kind = next(one for one in self.kinds if one.resource is resource)
        return self.indexers[kind.id].index

    def _values(self, resource: Resource, key: PipelineKey) -> Iterator[Manifest]:
        yield from map(json.loads, self._index(resource).get(key, ()))

    def _indexing(self, kind: Watched) -> Callable[..., Any]:
        async def index(body: kopf.Body, **_: object) -> dict[PipelineKey, bytes] | None:
            key = kind.key(body)
            return None if key is None else {key: self._text(kind, body)}

        return index

    def _noticing(self, kind: Watched) -> Callable[..., Any]:
        async def notice(body: kopf.Body, type: str | None, **_: object) -> None:
            if type == "DELETED":
                self._forget(body["metadata"]["uid"])
                # An answer to a write of ours may have brought it back since.
                self.indexers[kind.id].discard(self.indexers.make_key(body))
            key = kind.key(body)
            if key is not None:
                self._on_change(key, kind.resource)

        return notice
