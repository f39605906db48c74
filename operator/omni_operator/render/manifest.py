"""The frame of every manifest: metadata, owner, hash."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from omni_operator.api.pipeline import OmniPipeline
from omni_operator.names import (
    ANNOTATION_MANIFEST_HASH,
    API_VERSION,
    KIND,
    pipeline_labels,
    short_hash,
)

Manifest = dict[str, Any]
"""A Kubernetes object as JSON has it."""


def manifest(
    pipeline: OmniPipeline,
    kind: tuple[str, str],
    name: str,
    body: Mapping[str, Any],
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """Return an object that the pipeline owns; it goes when the pipeline does.

    Args:
        kind: API version and kind.
        body: everything beside metadata.
    """
    api_version, kind_name = kind
    content: Manifest = {
        "apiVersion": api_version,
        "kind": kind_name,
        "metadata": {
            "name": name,
            "namespace": pipeline.namespace,
            "labels": pipeline_labels(pipeline.name) | dict(labels or {}),
            "ownerReferences": [owner_reference(pipeline)],
        },
        **body,
    }
    notes = dict(annotations or {})
    digest = short_hash(canonical([content, notes]))
    content["metadata"]["annotations"] = {**notes, ANNOTATION_MANIFEST_HASH: digest}
    return content


def owner_reference(pipeline: OmniPipeline) -> Manifest:
    """Return the reference by which Kubernetes removes what the pipeline owned."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": pipeline.name,
        "uid": pipeline.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def canonical(value: object) -> str:
    """Return JSON text that is equal for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
