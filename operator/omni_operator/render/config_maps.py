"""ConfigMaps: the resolved configuration with its provenance, and the revisions to route to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from omni_operator.names import (
    CONFIG_FILE,
    PROVENANCE_FILE,
    ROUTES_FILE,
    routes_name,
)
from omni_operator.plan.observed import KnownRevision
from omni_operator.render.manifest import Manifest, manifest
from omni_operator.render.view import PipelineView

KIND = ("v1", "ConfigMap")


def config_map(view: PipelineView, name: str) -> Manifest:
    """Return the ConfigMap of the resolved configuration.

    Args:
        name: decided by its content, or an older name that running pods still mount.
    """
    data = {CONFIG_FILE: view.resolved.config_yaml, PROVENANCE_FILE: view.resolved.provenance}
    return manifest(view.pipeline, KIND, name, {"immutable": True, "data": data})


def routes_map(view: PipelineView, revisions: Iterable[KnownRevision]) -> Manifest:
    """Return the ConfigMap that tells gateways which revisions of groups make a pipeline.

    It is also the operator's own memory of revisions: `read_routes` reads it back.
    """
    rows = [
        {
            "name": one.name,
            "created": one.created,
            "served": one.served,
            "groups": {group: one.shapes[shape] for group, shape in one.groups.items()},
            "shapes": dict(one.shapes),
            "shapeOfGroup": dict(one.groups),
        }
        for one in revisions
    ]
    text = json.dumps({"revisions": rows}, indent=1)
    return manifest(view.pipeline, KIND, routes_name(view.name), {"data": {ROUTES_FILE: text}})


def read_routes(live: Manifest | None) -> tuple[KnownRevision, ...]:
    """Return the revisions that a live ConfigMap holds; none when it is absent or was damaged."""
    text = ((live or {}).get("data") or {}).get(ROUTES_FILE, "")
    try:
        return tuple(_known(row) for row in json.loads(text)["revisions"])
    except (ValueError, KeyError, TypeError):
        # Whoever edited it by hand cost the memory of old revisions, and nothing that runs.
        return ()


def _known(row: Mapping[str, Any]) -> KnownRevision:
    return KnownRevision(
        name=str(row["name"]),
        shapes=dict(row["shapes"]),
        created=float(row["created"]),
        served=bool(row["served"]),
        groups=dict(row["shapeOfGroup"]),
    )
