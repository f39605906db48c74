"""The kinds that are watched, whose an object is, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from omni_operator.controller.resources import PIPELINES, PODS, Resource
from omni_operator.names import APP_MANAGED_BY, FIELD_MANAGER, LABEL_PIPELINE
from omni_operator.render.manifest import Manifest

PipelineKey = tuple[str, str]
"""Namespace and name of an OmniPipeline."""

MANAGED = f"{APP_MANAGED_BY}={FIELD_MANAGER}"
"""Label selector of everything the operator owns."""

POD_METADATA = (
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

    def key(self, manifest: Mapping[str, Any]) -> PipelineKey | None:
        """Return the pipeline that an object of this kind concerns, None for objects of nobody."""
        metadata = manifest["metadata"]
        namespace = metadata.get("namespace") or ""
        if self.resource is PIPELINES:
            return namespace, metadata["name"]
        name = (metadata.get("labels") or {}).get(LABEL_PIPELINE)
        return (namespace, name) if name else None

    def kept(self, manifest: Mapping[str, Any]) -> Manifest:
        """Return what is kept of an object; items of a list come without their kind."""
        resource = self.resource
        return self.project({"apiVersion": resource.api_version, "kind": resource.kind, **manifest})


def watched(resources: Iterable[Resource]) -> tuple[Watched, ...]:
    """Return the watches for owned kinds, pods and pipelines."""
    owned = [Watched(one, whole) for one in resources]
    return Watched(PIPELINES, with_managers, selector=""), Watched(PODS, pod), *owned


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
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {key: metadata[key] for key in POD_METADATA if key in metadata},
        "spec": {
            "nodeName": spec.get("nodeName"),
            "containers": [{"name": one["name"]} for one in spec.get("containers") or ()],
        },
        "status": manifest.get("status") or {},
    }
