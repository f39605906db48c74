"""The Deployment of one revision of a pod shape."""

from __future__ import annotations

from omni_operator.names import (
    ANNOTATION_CLAIM,
    ANNOTATION_CONFIG_MAP,
    ANNOTATION_DEFAULT_IMAGE,
    ANNOTATION_GPUS,
    ANNOTATION_IMAGE,
    ANNOTATION_RENDER_VERSION,
    LABEL_REVISION,
    LABEL_SHAPE,
    workload_name,
)
from omni_operator.plan.revisions import ShapeTarget
from omni_operator.render.manifest import Manifest, manifest
from omni_operator.render.pod import shape_selector, stage_pod
from omni_operator.render.view import Pins, PipelineView

KIND = ("apps/v1", "Deployment")
PROGRESS_DEADLINE_SECONDS = 2_147_483_647
"""Never: whether a rollout progresses is the pipeline's to say."""


def stage_deployment(view: PipelineView, target: ShapeTarget, replicas: int, gpus: int) -> Manifest:
    """Return the Deployment of a pod shape's wanted revision.

    Args:
        gpus: whole GPUs of one pod; of a shared claim, those of the claim.
    """
    shape, revision = target.shape, target.revision
    labels = {LABEL_SHAPE: shape.name, LABEL_REVISION: revision}
    notes = pin_annotations(target.pins) | {ANNOTATION_GPUS: str(gpus)}
    if target.claim:
        notes[ANNOTATION_CLAIM] = target.claim
    return manifest(
        view.pipeline,
        KIND,
        workload_name(view.name, shape.name, revision),
        {
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": shape_selector(view.name, shape.name) | labels},
                "template": {
                    "metadata": {},
                    **stage_pod(view, shape, revision, target.pins, target.claim),
                },
                **deployment_defaults(max_surge=0, max_unavailable=1),
            }
        },
        labels=labels | {"app.kubernetes.io/component": "stage"},
        annotations=notes,
    )


def pin_annotations(pins: Pins) -> dict[str, str]:
    """Return the annotations from which `read_pins` reads pins back."""
    return {
        ANNOTATION_RENDER_VERSION: pins.render_version,
        ANNOTATION_IMAGE: pins.image,
        ANNOTATION_DEFAULT_IMAGE: str(pins.default_image).lower(),
        ANNOTATION_CONFIG_MAP: pins.config_map,
    }


def read_pins(live: Manifest) -> Pins:
    """Return the pins of a live object."""
    notes = live["metadata"].get("annotations") or {}
    return Pins(
        render_version=notes.get(ANNOTATION_RENDER_VERSION, ""),
        image=notes.get(ANNOTATION_IMAGE, ""),
        config_map=notes.get(ANNOTATION_CONFIG_MAP, ""),
        default_image=notes.get(ANNOTATION_DEFAULT_IMAGE) == "true",
    )


def deployment_defaults(*, max_surge: int, max_unavailable: int) -> Manifest:
    """Return what the server would fill into a Deployment's spec.

    A revision's template never changes, so the strategy only matters when a person edits the
    Deployment: then no pod beyond the wanted ones may take a GPU.
    """
    return {
        "minReadySeconds": 0,
        "progressDeadlineSeconds": PROGRESS_DEADLINE_SECONDS,
        "revisionHistoryLimit": 0,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": max_surge, "maxUnavailable": max_unavailable},
        },
    }
