"""GPUs of containers: counted resources, or claims on devices."""

from __future__ import annotations

from typing import Any

from omni_operator.api.pipeline import OmniPipeline
from omni_operator.names import (
    HASH_LENGTH,
    LABEL_CARD,
    NVIDIA_GPU,
    claim_name,
    pipeline_labels,
    short_hash,
)
from omni_operator.plan.shapes import Container, PodShape
from omni_operator.plan.sharing import PodMode, device_class
from omni_operator.render.manifest import Manifest, canonical, manifest
from omni_operator.render.view import PipelineView

CLAIM = "gpu"
"""Name of the claim inside a pod."""
CLAIM_KIND = ("resource.k8s.io/v1", "ResourceClaim")
TEMPLATE_KIND = ("resource.k8s.io/v1", "ResourceClaimTemplate")
GPU_TOLERATION = {"key": NVIDIA_GPU, "operator": "Exists", "effect": "NoSchedule"}


def container_resources(
    view: PipelineView, shape: PodShape, container: Container
) -> dict[str, Any]:
    """Return `resources` of a stage container: what was written for its groups, and its GPUs."""
    resources = _written(view, container)
    if not container.gpu_ids:
        return resources
    if shape.mode.uses_claims:
        return resources | {"claims": [_claim_of(shape, container)]}
    # In mode DevicePlugin this is a share of a GPU, else a whole one.
    count = {view.spec.gpu_sharing.resource_name: str(len(container.gpu_ids))}
    for key in ("limits", "requests"):
        resources[key] = {**resources.get(key, {}), **count}
    return resources


def pod_claims(shape: PodShape, claim: str) -> list[dict[str, Any]]:
    """Return `resourceClaims` of a pod. A shared claim is named; others are made per pod."""
    if not shape.mode.uses_claims:
        return []
    shared = shape.mode is PodMode.SHARED_CLAIM
    return [{"name": CLAIM, "resourceClaimName" if shared else "resourceClaimTemplateName": claim}]


def whole_claim() -> dict[str, Any]:
    """Return the reference to every device of the pod's claim."""
    return {"name": CLAIM}


def new_claim(pipeline: str, card_set: str, spec: Manifest, generation: str) -> str:
    """Return the name of a claim. Its end tells the spec and the generation apart.

    Args:
        generation: anything that must have a claim of its own; empty for one that is reused.
    """
    half = HASH_LENGTH // 2
    suffix = short_hash(canonical(spec))[:half] + short_hash(generation)[:half]
    return claim_name(pipeline, card_set, suffix)


def claim_fits(name: str, pipeline: str, card_set: str, spec: Manifest) -> bool:
    """Whether a claim of this name is for these cards and has this spec."""
    return name[: -HASH_LENGTH // 2] == new_claim(pipeline, card_set, spec, "")[: -HASH_LENGTH // 2]


def claim_spec(view: PipelineView, gpu_ids: tuple[int, ...]) -> Manifest:
    """Return the spec of a claim: one device per card of the plan, each a request of its own."""
    return {
        "devices": {
            "requests": [
                {
                    "name": f"gpu{gpu_id}",
                    "exactly": {
                        "deviceClassName": device_class(view.spec.gpu_sharing),
                        "allocationMode": "ExactCount",
                        "count": 1,
                    },
                }
                for gpu_id in gpu_ids
            ]
        }
    }


def claim_manifest(
    pipeline: OmniPipeline, shape_mode: PodMode, name: str, card_set: str, spec: Manifest
) -> Manifest:
    """Return the claim of a card set, or the template from which each pod gets one."""
    labels = {LABEL_CARD: card_set}
    if shape_mode is PodMode.SHARED_CLAIM:
        return manifest(pipeline, CLAIM_KIND, name, {"spec": spec}, labels=labels)
    # The claims that pods get from it are found by the same labels.
    made = {"metadata": {"labels": pipeline_labels(pipeline.name) | labels}, "spec": spec}
    return manifest(pipeline, TEMPLATE_KIND, name, {"spec": made}, labels=labels)


def _claim_of(shape: PodShape, container: Container) -> dict[str, Any]:
    if len(container.gpu_ids) == 1:
        return {"name": CLAIM, "request": f"gpu{container.gpu_ids[0]}"}
    return whole_claim()


def _written(view: PipelineView, container: Container) -> dict[str, Any]:
    """Return CPU and memory of a container; its groups agree on them, or one of them says it."""
    processes = dict.fromkeys(unit.process for unit in container.units)
    every = [view.spec.group(process).resources for process in processes]
    written = next((one for one in every if one.requests or one.limits), every[0])
    return {
        key: {name: str(quantity) for name, quantity in quantities.items()}
        for key, quantities in (("requests", written.requests), ("limits", written.limits))
        if quantities
    }
