"""The pod template of a pod shape."""

from __future__ import annotations

from typing import Any

from omni_operator.api.groups import PodTemplate, Toleration
from omni_operator.api.spec import OmniPipelineSpec
from omni_operator.names import (
    ANNOTATION_MPS_CLIENTS,
    LABEL_PROCESS_PREFIX,
    LABEL_REVISION,
    LABEL_SHAPE,
    READINESS_GATE,
    RUN_AS_USER,
    dns_name,
    pipeline_labels,
    service_account_name,
)
from omni_operator.plan.shapes import PodShape
from omni_operator.plan.sharing import PodMode
from omni_operator.render.containers import (
    download_container,
    image,
    mps_sidecar,
    restricted,
    stage_container,
)
from omni_operator.render.gpus import GPU_TOLERATION, pod_claims
from omni_operator.render.manifest import Manifest
from omni_operator.render.merge import merge
from omni_operator.render.view import Pins, PipelineView
from omni_operator.render.volumes import Volume, stage_volumes

STOP_SECONDS = 30
"""What a pod gets to stop beyond the time its requests may take."""


def stage_pod(
    view: PipelineView, shape: PodShape, revision: str, pins: Pins, claim: str = ""
) -> Manifest:
    """Return the pod template of a shape.

    Args:
        revision: of the shape; a label, and what the pod registers with.
        claim: name of the claim or claim template that its containers use, empty when none.
    """
    volumes = stage_volumes(view, shape, pins.config_map)
    spec: Manifest = {
        **pod_defaults(view.spec, view.name),
        "readinessGates": [{"conditionType": READINESS_GATE}],
        "terminationGracePeriodSeconds": shape.settings.drain.timeout_seconds + STOP_SECONDS,
        "nodeSelector": dict(shape.settings.node_selector),
        "tolerations": _tolerations(shape),
        "initContainers": _init_containers(view, shape, pins, volumes),
        "containers": [
            stage_container(view, shape, index, pins, revision) | _mounts(volumes)
            for index in range(len(shape.containers))
        ],
        "volumes": [volume.manifest for volume in volumes],
        "resourceClaims": pod_claims(shape, claim),
    }
    if shape.mode is PodMode.SIDECAR:
        # Equal process ids in two containers make CUDA take one process for the other.
        spec["shareProcessNamespace"] = True
    labels = shape_labels(view.name, shape) | {LABEL_REVISION: revision}
    metadata: Manifest = {"labels": labels}
    if shape.mps:
        clients = sum(unit.mps_client for unit in shape.units)
        metadata["annotations"] = {ANNOTATION_MPS_CLIENTS: str(clients)}
    template = patched({"metadata": metadata, "spec": spec}, shape.settings.pod_template)
    template["spec"] |= _completed_init_containers(view, pins, template["spec"])
    return template


def _completed_init_containers(view: PipelineView, pins: Pins, spec: Manifest) -> Manifest:
    """Return init containers where those of a podTemplate that name no image have the stages'.

    They prepare what the stages read, so the same programs serve, under the same restrictions.
    """
    found = spec.get("initContainers", [])
    own = {**image(view, pins), "securityContext": restricted(read_only_root=True)}
    completed = [one if "image" in one else {**own, **one} for one in found]
    return {"initContainers": completed} if completed else {}


def shape_labels(pipeline: str, shape: PodShape) -> dict[str, str]:
    """Return the labels of every pod of a shape, whatever its revision."""
    labels = shape_selector(pipeline, shape.name) | pipeline_labels(pipeline, "stage")
    return labels | {
        f"{LABEL_PROCESS_PREFIX}{dns_name(process)}": "true" for process in shape.processes
    }


def shape_selector(pipeline: str, shape: str) -> dict[str, str]:
    """Return the labels that select the pods of a shape."""
    selector = pipeline_labels(pipeline, "stage")
    return {key: selector[key] for key in _SELECTING} | {LABEL_SHAPE: shape}


_SELECTING = tuple(
    key for key in pipeline_labels("", "stage") if not key.endswith(("managed-by", "/name"))
)


def pod_defaults(spec: OmniPipelineSpec, pipeline: str) -> Manifest:
    """Return what all pods of a pipeline have in common, the server's defaults written out."""
    account = service_account_name(pipeline)
    return {
        "serviceAccountName": account,
        "serviceAccount": account,
        "automountServiceAccountToken": False,
        # Variables of every Service in the namespace slow a start down and mean nothing here.
        "enableServiceLinks": False,
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "imagePullSecrets": [{"name": name} for name in spec.images.pull_secrets],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": RUN_AS_USER,
            "runAsGroup": RUN_AS_USER,
            "fsGroup": RUN_AS_USER,
            # A volume with a checkpoint has many files; they are changed once, not per start.
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def patched(template: Manifest, patch: PodTemplate) -> Manifest:
    """Return a pod template with the user's patch; labels and gates of the operator stay."""
    metadata = template["metadata"]
    own: dict[str, str] = metadata["labels"]
    result: Manifest = {
        "metadata": {"labels": {**patch.metadata.labels, **own}},
        "spec": _without_empty(merge(template["spec"], patch.spec)),
    }
    notes = {**patch.metadata.annotations, **metadata.get("annotations", {})}
    if notes:
        result["metadata"]["annotations"] = notes
    return result


def tolerations_of(written: tuple[Toleration, ...]) -> list[dict[str, Any]]:
    """Return tolerations as a pod has them."""
    return [one.model_dump(exclude_none=True) for one in written]


def _tolerations(shape: PodShape) -> list[dict[str, Any]]:
    own = [GPU_TOLERATION] if shape.gpu_ids else []
    return own + tolerations_of(shape.settings.tolerations)


def _init_containers(
    view: PipelineView, shape: PodShape, pins: Pins, volumes: list[Volume]
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    models = next((volume for volume in volumes if volume.name == "models"), None)
    download = None if models is None else download_container(view, pins, models)
    if download is not None:
        found.append(download)
    if shape.mps and shape.mode is PodMode.SIDECAR:
        shared = [volume for volume in volumes if volume.name in ("mps", "shm", "tmp")]
        found.append(mps_sidecar(view, shape, pins) | _mounts(shared))
    return found


def _mounts(volumes: list[Volume]) -> dict[str, Any]:
    return {"volumeMounts": [volume.mount for volume in volumes]}


def _without_empty(spec: Manifest) -> Manifest:
    """Leave out empty lists and mappings: the server drops them, and a diff would show them."""
    return {key: value for key, value in spec.items() if value not in ([], {})}
