"""Containers of stage pods."""

from __future__ import annotations

from typing import Any

from omni_operator.names import (
    DOWNLOAD_CONTAINER,
    HEALTH_PORT,
    HUB_TOKEN_VARIABLE,
    METRICS_PORT,
    MODEL_DIR,
    STAGE_PORT,
    TMP_DIR,
)
from omni_operator.plan.shapes import PodShape
from omni_operator.render.commands import (
    download_command,
    first_port,
    mps_command,
    mps_environment,
    quota_environment,
    stage_command,
    stage_environment,
)
from omni_operator.render.gpus import container_resources, whole_claim
from omni_operator.render.view import Pins, PipelineView
from omni_operator.render.volumes import Volume, empty
from omni_operator.resolution import model_directory

START_PERIOD_SECONDS = 1
START_FAILURES = 1800
"""Half an hour to load a checkpoint, asked every second: readiness must not wait for a poll."""
LIVE_PERIOD_SECONDS = 10
LIVE_FAILURES = 3


def stage_container(
    view: PipelineView, shape: PodShape, index: int, pins: Pins, revision: str
) -> dict[str, Any]:
    """Return the `index`-th container of a stage pod, without its volume mounts."""
    container = shape.containers[index]
    health = HEALTH_PORT + index
    first = first_port(shape, index)
    count = len(container.groups)
    return {
        "name": container.name,
        **image(view, pins),
        "command": stage_command(view, shape, index, revision),
        "env": stage_environment(view, shape, container),
        "ports": [
            *(_numbered("grpc", STAGE_PORT + first, count)),
            *(_numbered("metrics", METRICS_PORT + first, count)),
            port("health" if index == 0 else f"health-{index}", health),
        ],
        "resources": container_resources(view, shape, container),
        "startupProbe": probe("/startupz", health, START_PERIOD_SECONDS, START_FAILURES),
        "livenessProbe": probe("/livez", health, LIVE_PERIOD_SECONDS, LIVE_FAILURES),
        "readinessProbe": probe("/readyz", health, 1, 3),
        "lifecycle": drain_hook(health),
        "securityContext": restricted(read_only_root=not shape.gpu_ids),
        **TERMINATION,
    }


def mps_sidecar(view: PipelineView, shape: PodShape, pins: Pins) -> dict[str, Any]:
    """Return the MPS daemon as a restartable init container: clients start once it answers."""
    return {
        "name": "mps",
        **image(view, pins),
        "command": mps_command("run"),
        "env": [
            {"name": "HOME", "value": TMP_DIR},
            *mps_environment(shape),
            *quota_environment(view.config.mps_quota),
        ],
        "restartPolicy": "Always",
        "resources": {"claims": [whole_claim()]},
        "startupProbe": {
            "exec": {"command": mps_command("check")},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            "successThreshold": 1,
            "failureThreshold": 60,
        },
        "securityContext": restricted(read_only_root=False),
        **TERMINATION,
    }


def download_container(view: PipelineView, pins: Pins, volume: Volume) -> dict[str, Any] | None:
    """Return the container that fetches the checkpoint first, null when nothing is fetched."""
    model = view.spec.model
    if model is None or model.repo is None:
        return None
    variables: list[dict[str, Any]] = [{"name": "HOME", "value": TMP_DIR}]
    if model.token_secret_ref is not None:
        token = {"name": model.token_secret_ref.name, "key": model.token_secret_ref.key}
        variables.append({"name": HUB_TOKEN_VARIABLE, "valueFrom": {"secretKeyRef": token}})
    return {
        "name": DOWNLOAD_CONTAINER,
        **image(view, pins),
        "command": download_command(view, model_directory(model)),
        "env": variables,
        "resources": {},
        "volumeMounts": [
            {"name": volume.name, "mountPath": MODEL_DIR},
            empty("tmp", TMP_DIR).mount,
        ],
        "securityContext": restricted(read_only_root=True),
        **TERMINATION,
    }


TERMINATION = {
    "terminationMessagePath": "/dev/termination-log",
    # The last log lines of a container that died say more than a file nobody writes.
    "terminationMessagePolicy": "FallbackToLogsOnError",
}


def image(view: PipelineView, pins: Pins) -> dict[str, Any]:
    """Return the image fields of a container."""
    return {"image": pins.image, "imagePullPolicy": view.spec.images.pull_policy}


def port(name: str, number: int) -> dict[str, Any]:
    """Return a container port."""
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def probe(path: str, number: int, period_seconds: int, failures: int) -> dict[str, Any]:
    """Return an HTTP probe."""
    return {
        "httpGet": {"path": path, "port": number, "scheme": "HTTP"},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 2,
        "successThreshold": 1,
        "failureThreshold": failures,
    }


def drain_hook(number: int) -> dict[str, Any]:
    """Return the hook that holds a container back until its requests are finished."""
    return {"preStop": {"httpGet": {"path": "/drain", "port": number, "scheme": "HTTP"}}}


def restricted(*, read_only_root: bool) -> dict[str, Any]:
    """Return the security context that Pod Security's `restricted` asks for.

    The root file system of GPU containers stays writable: NVIDIA's CDI hooks update the linker
    cache in it.
    """
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": read_only_root,
    }


def _numbered(name: str, first: int, count: int) -> list[dict[str, Any]]:
    """Return the ports of the processes of one container; names are unique in a pod."""
    bases = {"grpc": STAGE_PORT, "metrics": METRICS_PORT}
    offset = first - bases[name]
    return [
        port(name if offset + index == 0 else f"{name}-{offset + index}", first + index)
        for index in range(count)
    ]
