"""Command lines and environment of the containers: the whole contract between pods and runtime.

`omni_runtime.pod` starts the process groups of one container, answers Kubernetes' probes over
plain HTTP and drains. Addresses use `$(POD_IP)`, which the kubelet fills in.
"""

from __future__ import annotations

from typing import Any

from omni_config.settings import MpsQuota
from omni_operator.names import (
    CONFIG_DIR,
    CONFIG_FILE,
    CONTROL_PORT,
    GATEWAY_AUTH_DIR,
    GATEWAY_GRPC_PORT,
    GATEWAY_HTTP_PORT,
    GATEWAY_TLS_DIR,
    HEALTH_PORT,
    METRICS_PORT,
    MPS_DIR,
    ROUTES_DIR,
    ROUTES_FILE,
    STAGE_PORT,
    TLS_DIR,
    TMP_DIR,
    control_service_name,
    tls_server_name,
)
from omni_operator.plan.shapes import Container, PodShape
from omni_operator.plan.sharing import PodMode
from omni_operator.render.view import PipelineView

CONFIG_PATH = f"{CONFIG_DIR}/{CONFIG_FILE}"
PIPE_DIR = f"{MPS_DIR}/pipe"
LOG_DIR = f"{MPS_DIR}/log"


def stage_command(view: PipelineView, shape: PodShape, index: int, revision: str) -> list[str]:
    """Return the command of the `index`-th container of a pod shape.

    Its n-th process listens, and serves metrics, n ports above those of the container.
    """
    container = shape.containers[index]
    first = first_port(shape, index)
    words = ["python", "-m", "omni_runtime.pod", "--config", CONFIG_PATH]
    for group in container.groups:
        words += ["--group", group]
    words += ["--listen", f"0.0.0.0:{STAGE_PORT + first}"]
    words += ["--advertise", f"$(POD_IP):{STAGE_PORT + first}"]
    words += ["--gateway", gateway_target(view)]
    words += ["--revision", revision]
    words += ["--health-port", str(HEALTH_PORT + index)]
    words += ["--metrics-port", str(METRICS_PORT + first)]
    words += ["--drain-seconds", str(shape.settings.drain.timeout_seconds)]
    words += ["--label", "pod=$(POD_NAME)", "--label", "node=$(NODE_NAME)"]
    if shape.mps and shape.mode is PodMode.IN_CONTAINER:
        words.append("--mps")
    return [*words, *tls_flags(view), "--log-format", "json"]


def first_port(shape: PodShape, index: int) -> int:
    """Return how far above the first port a container's own ports begin."""
    return sum(len(container.groups) for container in shape.containers[:index])


def mps_command(action: str) -> list[str]:
    """Return the command of the MPS sidecar: `run` the daemon, or `check` that it answers."""
    return ["python", "-m", "omni_runtime.mps.sidecar", action]


def download_command(view: PipelineView, directory: str) -> list[str]:
    """Return the command that fetches the checkpoint; it resumes and verifies."""
    model = view.spec.model
    words = ["python", "-m", "omni_runtime.model_download"]
    if model is None or model.repo is None:
        return words
    words += ["--repo", model.repo, "--revision", model.revision or "main"]
    # No other container listens there before it has ended.
    return [*words, "--directory", directory, "--progress-port", str(HEALTH_PORT)]


def gateway_command(view: PipelineView) -> list[str]:
    """Return the command of a gateway."""
    gateway = view.spec.gateway
    words = ["python", "-m", "omni_gateway.main", "--config", CONFIG_PATH]
    words += ["--listen", f"0.0.0.0:{GATEWAY_GRPC_PORT}"]
    words += ["--http", f"0.0.0.0:{GATEWAY_HTTP_PORT}"]
    words += ["--control", f"0.0.0.0:{CONTROL_PORT}"]
    words += ["--routes", f"{ROUTES_DIR}/{ROUTES_FILE}"]
    words += ["--health-port", str(HEALTH_PORT), "--metrics-port", str(METRICS_PORT)]
    words += ["--drain-seconds", str(gateway.drain.timeout_seconds)]
    if gateway.tls.secret_name is not None:
        words += ["--client-tls-certificate", f"{GATEWAY_TLS_DIR}/tls.crt"]
        words += ["--client-tls-key", f"{GATEWAY_TLS_DIR}/tls.key"]
    else:
        words.append("--plaintext-clients")
    if gateway.auth.api_key_secret is not None:
        words += ["--api-keys", GATEWAY_AUTH_DIR]
    else:
        words.append("--no-auth")
    return [*words, *tls_flags(view), "--log-format", "json"]


def gateway_target(view: PipelineView) -> str:
    """Return the name under which groups find every gateway."""
    service = control_service_name(view.name)
    return f"dns:///{service}.{view.namespace}.svc:{CONTROL_PORT}"


def tls_flags(view: PipelineView) -> list[str]:
    """Return the flags of mutual TLS between pods, or those that do without."""
    if view.spec.certificates.mode == "Off":
        return ["--insecure"]
    words = ["--tls-certificate", f"{TLS_DIR}/tls.crt", "--tls-key", f"{TLS_DIR}/tls.key"]
    words += ["--tls-ca", f"{TLS_DIR}/ca.crt"]
    return [*words, "--tls-server-name", tls_server_name(view.name, view.namespace)]


def stage_environment(
    view: PipelineView, shape: PodShape, container: Container
) -> list[dict[str, Any]]:
    """Return the environment of a stage container."""
    variables = [
        _field("POD_IP", "status.podIP"),
        _field("POD_NAME", "metadata.name"),
        _field("NODE_NAME", "spec.nodeName"),
        {"name": "HOME", "value": TMP_DIR},
    ]
    if view.spec.model is not None:
        # The checkpoint is a directory; a stage that asked the hub would hide a wrong path.
        variables.append({"name": "HF_HUB_OFFLINE", "value": "1"})
    if len(container.groups) == 1 and container.gpu_ids:
        # The one card of the container is number 0 there, whatever its number in the plan.
        variables.append({"name": "SGLANG_ONE_VISIBLE_DEVICE_PER_PROCESS", "value": "true"})
    if shape.mps:
        variables += mps_environment(shape)
    return variables


def mps_environment(shape: PodShape) -> list[dict[str, Any]]:
    """Return what clients and daemon of a pod need to meet."""
    if shape.mode is PodMode.IN_CONTAINER:
        return [{"name": "OMNI_MPS_STATE_ROOT", "value": MPS_DIR}]
    return [
        {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": PIPE_DIR},
        {"name": "CUDA_MPS_LOG_DIRECTORY", "value": LOG_DIR},
    ]


def quota_environment(quota: MpsQuota) -> list[dict[str, Any]]:
    """Return what a daemon that nobody leases reads its clients' limits from."""
    variables = []
    if quota.active_thread_percentage is not None:
        share = f"{quota.active_thread_percentage:g}"
        variables.append({"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": share})
    if quota.pinned_memory is not None:
        # The daemon sees one device, so its number is always 0.
        limit = f"0={quota.pinned_memory >> 20}M"
        variables.append({"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": limit})
    return variables


def gateway_environment() -> list[dict[str, Any]]:
    """Return the environment of a gateway."""
    return [
        _field("POD_IP", "status.podIP"),
        _field("POD_NAME", "metadata.name"),
        {"name": "HOME", "value": TMP_DIR},
    ]


def _field(name: str, path: str) -> dict[str, Any]:
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}
    return {"name": name, "valueFrom": source}
