"""The gateway's Deployment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from omni_operator.names import (
    APP_COMPONENT,
    CONTROL_PORT,
    GATEWAY_AUTH_DIR,
    GATEWAY_GRPC_PORT,
    GATEWAY_HTTP_PORT,
    GATEWAY_TLS_DIR,
    HEALTH_PORT,
    LABEL_REVISION,
    METRICS_PORT,
    ROUTES_DIR,
    TMP_DIR,
    gateway_name,
    pipeline_labels,
    routes_name,
    short_hash,
)
from omni_operator.render.commands import gateway_command, gateway_environment
from omni_operator.render.containers import (
    TERMINATION,
    drain_hook,
    image,
    port,
    probe,
    restricted,
)
from omni_operator.render.manifest import Manifest, canonical, manifest
from omni_operator.render.pod import STOP_SECONDS, patched, pod_defaults, tolerations_of
from omni_operator.render.services import gateway_selector
from omni_operator.render.view import Pins, PipelineView, image_fits
from omni_operator.render.volumes import (
    FILE_MODE,
    Volume,
    config_volume,
    empty,
    secret,
    tls_volumes,
)
from omni_operator.render.workload import deployment_defaults, pin_annotations, read_pins

KIND = ("apps/v1", "Deployment")
_PLACEHOLDER = "x"


def gateway_deployment(view: PipelineView, live: Manifest | None) -> Manifest:
    """Return the Deployment of the gateways.

    Kubernetes itself rolls it, a pod at a time: a gateway holds nothing that its clients cannot
    retry, and groups register with every one.

    Args:
        live: the Deployment as it is; its pods keep what they were rendered with while they fit.
    """
    pins = _pins(view, live)
    revision = gateway_revision(view, pins)
    template = _pod(view, pins, revision)
    spec = {
        "replicas": view.spec.gateway.replicas,
        "selector": {"matchLabels": gateway_selector(view.name)},
        "template": template,
        **deployment_defaults(max_surge=1, max_unavailable=0),
    }
    return manifest(
        view.pipeline,
        KIND,
        gateway_name(view.name),
        {"spec": spec},
        labels={APP_COMPONENT: "gateway", LABEL_REVISION: revision},
        annotations=pin_annotations(pins),
    )


def gateway_revision(view: PipelineView, pins: Pins) -> str:
    """Return a hash of what changes gateway pods: their template and the settings they read."""
    template = _pod(view, replace(pins, config_map=_PLACEHOLDER), _PLACEHOLDER)
    return short_hash(canonical([pins.render_version, template, _settings(view)]))


def _pins(view: PipelineView, live: Manifest | None) -> Pins:
    if live is None:
        return view.gateway_pins
    pins = read_pins(live)
    labels = live["metadata"].get("labels") or {}
    fits = image_fits(view.spec.images.gateway, pins)
    same = labels.get(LABEL_REVISION) == gateway_revision(view, pins)
    return pins if fits and same else view.gateway_pins


def _settings(view: PipelineView) -> Manifest:
    """Return the settings that a gateway reads: those of the whole, and the graph."""
    config = view.config
    return {
        "config_cls": config.config_cls,
        "model_path": config.model_path,
        "name": config.display_name,
        "stream_delivery": config.stream_delivery.model_dump(mode="json"),
        "max_in_flight": view.resolved.runtime.max_in_flight,
        "processes": {stage.name: stage.process_name for stage in config.stages},
        "replicas": dict(view.resolved.runtime.replica_topology.replicas),
        "comm": {stage.name: stage.comm.model_dump(mode="json") for stage in config.stages},
    }


def _pod(view: PipelineView, pins: Pins, revision: str) -> Manifest:
    gateway = view.spec.gateway
    volumes = _volumes(view, pins)
    spec: Manifest = {
        **pod_defaults(view.spec, view.name),
        "terminationGracePeriodSeconds": gateway.drain.timeout_seconds + STOP_SECONDS,
        "nodeSelector": dict(gateway.node_selector),
        "tolerations": tolerations_of(gateway.tolerations),
        "containers": [_container(view, pins, volumes)],
        "volumes": [volume.manifest for volume in volumes],
    }
    labels = pipeline_labels(view.name, "gateway") | {LABEL_REVISION: revision}
    return patched({"metadata": {"labels": labels}, "spec": spec}, gateway.pod_template)


def _container(view: PipelineView, pins: Pins, volumes: list[Volume]) -> dict[str, Any]:
    resources = view.spec.gateway.resources
    return {
        "name": "gateway",
        **image(view, pins),
        "command": gateway_command(view),
        "env": gateway_environment(),
        "ports": [
            port("grpc", GATEWAY_GRPC_PORT),
            port("http", GATEWAY_HTTP_PORT),
            port("control", CONTROL_PORT),
            port("metrics", METRICS_PORT),
            port("health", HEALTH_PORT),
        ],
        "resources": {
            key: {name: str(quantity) for name, quantity in quantities.items()}
            for key, quantities in (("requests", resources.requests), ("limits", resources.limits))
            if quantities
        },
        "startupProbe": probe("/startupz", HEALTH_PORT, 1, 60),
        "livenessProbe": probe("/livez", HEALTH_PORT, 10, 3),
        "readinessProbe": probe("/readyz", HEALTH_PORT, 1, 3),
        "lifecycle": drain_hook(HEALTH_PORT),
        "securityContext": restricted(read_only_root=True),
        **TERMINATION,
        "volumeMounts": [volume.mount for volume in volumes],
    }


def _volumes(view: PipelineView, pins: Pins) -> list[Volume]:
    gateway = view.spec.gateway
    routes = {
        "configMap": {
            "name": routes_name(view.name),
            "defaultMode": FILE_MODE,
            # A gateway without it serves what registers; one that cannot start serves nobody.
            "optional": True,
        }
    }
    volumes = [
        config_volume(pins.config_map),
        Volume("routes", routes, ROUTES_DIR, read_only=True),
        empty("tmp", TMP_DIR),
        *tls_volumes(view),
    ]
    if gateway.tls.secret_name is not None:
        volumes.append(secret("client-tls", gateway.tls.secret_name, GATEWAY_TLS_DIR))
    if gateway.auth.api_key_secret is not None:
        volumes.append(secret("api-keys", gateway.auth.api_key_secret, GATEWAY_AUTH_DIR))
    return volumes
