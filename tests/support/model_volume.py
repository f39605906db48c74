"""A volume of a node of our own with a checkpoint on it, for the pods of a pipeline to share."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.node import Manifest, Node

CLAIM = "models"


@contextmanager
def model_volume(node: Node, folder: Path) -> Iterator[Manifest]:
    """Yield the PersistentVolumeClaim of a volume that holds a folder of this machine.

    The volume is there as long as the block lasts, the claim is left to the caller to apply.
    """
    assert node.is_ours, "elsewhere a folder of this machine is not one of the cluster's"
    name = f"models-{uuid.uuid4().hex[:8]}"
    shape: Manifest = {
        "accessModes": ["ReadOnlyMany"],
        "storageClassName": "",
    }
    volume: Manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            **shape,
            "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder), "type": "Directory"},
        },
    }
    node.apply(volume)
    try:
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM},
            "spec": {
                **shape,
                "volumeName": name,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    finally:
        node.kubectl("delete", "persistentvolume", name, "--wait=false")


def from_volume(manifest: Manifest) -> Manifest:
    """Return an OmniPipeline that reads its checkpoint from the claim instead of writing one."""
    spec = manifest["spec"]
    groups = {name: _without_template(group) for name, group in spec["groups"].items()}
    model = {"path": "/models", "volume": {"persistentVolumeClaim": {"claimName": CLAIM}}}
    return {**manifest, "spec": {**spec, "model": model, "groups": groups}}


def _without_template(group: Manifest) -> Manifest:
    return {key: value for key, value in group.items() if key != "podTemplate"}
