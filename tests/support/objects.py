"""Builders of OmniPipeline objects, and the table of objects that the API refuses."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from omni_models.catalog import registry
from omni_operator.api.pipeline import OmniPipeline, read_pipeline
from omni_operator.names import API_VERSION, KIND
from omni_operator.plan.capabilities import Capabilities
from omni_operator.plan.shapes import plan_pods
from omni_operator.render.view import PipelineView, Release
from omni_operator.resolution import Profiles, resolve_pipeline

RELEASE = Release("stage:1", "gateway:1")
DRA = Capabilities(device_classes=frozenset({"gpu.nvidia.com"}))
NO_DRA = Capabilities()

SPEECH: dict[str, Any] = {
    "config_cls": "Qwen3OmniSpeechPipelineConfig",
    "model_path": "/models/tiny",
    "stages": {
        "image_encoder": {"gpu_memory_fraction": 0.04},
        "audio_encoder": {"gpu_memory_fraction": 0.04},
        "thinker": {"gpu_memory_fraction": 0.8},
        "talker_ar": {"gpu_memory_fraction": 0.4},
    },
}


def speech(**spec: Any) -> dict[str, Any]:
    """Return an object with the speech pipeline; keyword arguments are fields of its spec."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "demo", "namespace": "default", "uid": "u-1", "generation": 1},
        "spec": {"config": deepcopy(SPEECH), **spec},
    }


def stage(manifest: dict[str, Any], name: str, **settings: Any) -> dict[str, Any]:
    """Return an object with further settings of one stage; the given one stays."""
    changed = deepcopy(manifest)
    changed["spec"]["config"].setdefault("stages", {}).setdefault(name, {}).update(settings)
    return changed


def read(manifest: dict[str, Any]) -> OmniPipeline:
    """Read an object."""
    return read_pipeline(manifest)


def view(
    manifest: dict[str, Any],
    cluster: Capabilities = DRA,
    release: Release = RELEASE,
    profiles: Profiles | None = None,
) -> PipelineView:
    """Resolve an object and plan its pods."""
    resolved = resolve_pipeline(read(manifest), profiles or {}, registry())
    return PipelineView(resolved, plan_pods(resolved, cluster), cluster, release)


@dataclass(frozen=True)
class Refused:
    """An object that the API server refuses by a CEL rule, and `read_pipeline` in the same words.

    Attributes:
        spec: fields of the spec.
        config: keys of `spec.config` to take away.
        says: the rule's message.
    """

    name: str
    spec: dict[str, Any]
    says: str
    without: tuple[str, ...] = ()

    @property
    def manifest(self) -> dict[str, Any]:
        """The object."""
        manifest = speech(**self.spec)
        for key in self.without:
            del manifest["spec"]["config"][key]
        return manifest


REFUSED = (
    Refused(
        "checkpoint named twice",
        {"model": {"path": "/models/x"}},
        "set the checkpoint once: spec.model or spec.config.model_path",
    ),
    Refused(
        "no checkpoint",
        {},
        "name the checkpoint: spec.model, or spec.config.model_path",
        without=("model_path",),
    ),
    Refused(
        "two sources of a checkpoint",
        {"model": {"path": "/x", "repo": "a/b"}},
        "set exactly one of path (a directory) and repo (a repository to download)",
        without=("model_path",),
    ),
    Refused(
        "revision of a directory",
        {"model": {"path": "/x", "revision": "main"}},
        "revision belongs to repo; a directory has no revisions",
        without=("model_path",),
    ),
    Refused(
        "two caches",
        {"modelCache": {"claimName": "a", "size": "1Gi"}},
        "set exactly one of claimName (a claim that exists) and size (a claim to create)",
    ),
    Refused(
        "class of an existing claim",
        {"modelCache": {"claimName": "a", "storageClassName": "fast"}},
        "storageClassName belongs to size; an existing claim has a class already",
    ),
    Refused(
        "device class without claims",
        {"gpuSharing": {"mode": "InContainer", "deviceClassName": "x"}},
        "deviceClassName belongs to the modes Auto, SharedClaim and Sidecar",
    ),
    Refused(
        "lower bound without autoscaler",
        {"groups": {"thinker": {"scaling": {"minReplicas": 2}}}},
        "minReplicas needs maxReplicas: without it there is no autoscaler",
    ),
    Refused(
        "bounds the wrong way round",
        {"groups": {"thinker": {"scaling": {"minReplicas": 3, "maxReplicas": 2}}}},
        "minReplicas must not exceed maxReplicas",
    ),
    Refused(
        "two autoscalers",
        {"groups": {"thinker": {"scaling": {"external": True, "maxReplicas": 2}}}},
        "external means that an autoscaler of your own sets the replicas; leave out maxReplicas",
    ),
    Refused(
        "a rollout without a step",
        {"groups": {"thinker": {"rollout": {"maxSurge": "0%", "maxUnavailable": 0}}}},
        "maxSurge and maxUnavailable must not both be zero: no rollout could take a step",
    ),
    Refused(
        "an issuer for the operator's own certificates",
        {"certificates": {"mode": "Operator", "issuerRef": {"name": "x"}}},
        "issuerRef belongs to mode CertManager, which needs it",
    ),
    Refused(
        "cert-manager without issuer",
        {"certificates": {"mode": "CertManager"}},
        "issuerRef belongs to mode CertManager, which needs it",
    ),
)
