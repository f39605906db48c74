"""Volumes of pods and where containers mount them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omni_operator.names import (
    CONFIG_DIR,
    MODEL_DIR,
    MPS_DIR,
    RUN_DIR,
    TLS_DIR,
    TMP_DIR,
    cache_claim_name,
    tls_secret_name,
)
from omni_operator.plan.shapes import PodShape
from omni_operator.render.view import PipelineView

FILE_MODE = 0o644
SECRET_MODE = 0o440
"""Readable by the pod's group, which fsGroup gives the files."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume of a pod and its mount.

    Attributes:
        source: the volume's source, such as `{"emptyDir": {}}`.
    """

    name: str
    source: dict[str, Any]
    path: str
    read_only: bool = False

    @property
    def manifest(self) -> dict[str, Any]:
        """The entry of `volumes`."""
        return {"name": self.name, **self.source}

    @property
    def mount(self) -> dict[str, Any]:
        """The entry of `volumeMounts`."""
        mount: dict[str, Any] = {"name": self.name, "mountPath": self.path}
        return mount | {"readOnly": True} if self.read_only else mount


def stage_volumes(view: PipelineView, shape: PodShape, config_map: str) -> list[Volume]:
    """Return the volumes of a stage pod; every stage container mounts all of them."""
    shared_memory = {"medium": "Memory", "sizeLimit": str(shape.settings.shared_memory)}
    volumes = [
        config_volume(config_map),
        Volume("shm", {"emptyDir": shared_memory}, "/dev/shm"),
        empty("run", RUN_DIR),
        empty("tmp", TMP_DIR),
        *tls_volumes(view),
    ]
    if shape.mps:
        volumes.append(empty("mps", MPS_DIR))
    model = model_volume(view)
    return volumes if model is None else [*volumes, model]


def config_volume(config_map: str) -> Volume:
    """Return the volume of the resolved configuration."""
    source = {"configMap": {"name": config_map, "defaultMode": FILE_MODE}}
    return Volume("config", source, CONFIG_DIR, read_only=True)


def tls_volumes(view: PipelineView) -> list[Volume]:
    """Return the volume of the pipeline's certificate, if it has one."""
    if view.spec.certificates.mode == "Off":
        return []
    return [secret("tls", tls_secret_name(view.name), TLS_DIR)]


def model_volume(view: PipelineView) -> Volume | None:
    """Return the volume with the checkpoint, null when the image or a stage brings it."""
    model, cache = view.spec.model, view.spec.model_cache
    if model is not None and model.volume is not None and model.repo is None:
        return Volume("models", dict(model.volume), MODEL_DIR, model.read_only)
    if cache is not None:
        claim = cache.claim_name or cache_claim_name(view.name)
        source = {"persistentVolumeClaim": {"claimName": claim}}
        return Volume("models", source, MODEL_DIR, read_only=model is None or model.repo is None)
    if model is not None and model.repo is not None:
        source = {"emptyDir": {}} if model.volume is None else dict(model.volume)
        return Volume("models", source, MODEL_DIR)
    return None


def empty(name: str, path: str) -> Volume:
    """Return a volume that lives as long as its pod."""
    return Volume(name, {"emptyDir": {}}, path)


def secret(name: str, secret_name: str, path: str) -> Volume:
    """Return a volume with the content of a Secret."""
    source = {"secret": {"secretName": secret_name, "defaultMode": SECRET_MODE}}
    return Volume(name, source, path, read_only=True)
