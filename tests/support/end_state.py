"""What remains of a pipeline's objects when everything that differs between two runs is left out.

Two histories that should end alike are compared by these, read from the API server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from omni_operator.names import ANNOTATION_MANIFEST_HASH, GROUP
from omni_operator.render.manifest import Manifest

_SERVER_METADATA = (
    "creationTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
_TIMES = re.compile(rf"{re.escape(GROUP)}/(created|drain-started)")
_DRAWN = ("clusterIP", "clusterIPs", "healthCheckNodePort", "nodePort")
"""Fields of a Service's spec that the API server draws."""


def end_state(owned: Mapping[tuple[str, str], Manifest]) -> dict[str, Any]:
    """Return the objects by kind and name, without what depends on when and how often they were
    written."""
    return {f"{kind} {name}": _essence(one) for (kind, name), one in sorted(owned.items())}


def _essence(manifest: Manifest) -> dict[str, Any]:
    content = {key: value for key, value in manifest.items() if key not in ("metadata", "status")}
    if manifest["kind"] == "Service":
        content["spec"] = {
            key: value for key, value in content["spec"].items() if key not in _DRAWN
        }
    if manifest["kind"] == "Secret":
        # Made from the object's UID, so another object of the same name has other keys.
        content["data"] = sorted(content["data"])
    return {"metadata": _metadata(manifest["metadata"]), **_without_times(content)}


def _metadata(metadata: Manifest) -> dict[str, Any]:
    kept = {key: value for key, value in metadata.items() if key not in _SERVER_METADATA}
    notes = dict(kept.pop("annotations", {}))
    # The Deployment controller counts revisions of its own; a replicas change is none.
    notes.pop("deployment.kubernetes.io/revision", None)
    notes.pop(ANNOTATION_MANIFEST_HASH, None)
    owners = [
        {key: value for key, value in owner.items() if key != "uid"}
        for owner in kept.pop("ownerReferences", ())
    ]
    notes = {key: value for key, value in notes.items() if not _TIMES.fullmatch(key)}
    return {**kept, "annotations": notes, "ownerReferences": owners}


def _without_times(content: dict[str, Any]) -> dict[str, Any]:
    """Blank times inside JSON texts, such as those of the routes."""
    text = json.dumps(content)
    text = re.sub(r'(\\"created\\": ?)[0-9.]+', r"\1 0", text)
    found: dict[str, Any] = json.loads(text)
    return found
