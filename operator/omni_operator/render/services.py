"""Services: how clients reach gateways, groups find them, and people resolve groups."""

from __future__ import annotations

from typing import Any

from omni_operator.names import (
    APP_COMPONENT,
    APP_INSTANCE,
    CONTROL_PORT,
    GATEWAY_GRPC_PORT,
    GATEWAY_HTTP_PORT,
    LABEL_PIPELINE,
    LABEL_PROCESS_PREFIX,
    METRICS_PORT,
    STAGE_PORT,
    control_service_name,
    dns_name,
    gateway_name,
    group_service_name,
)
from omni_operator.render.manifest import Manifest, manifest
from omni_operator.render.view import PipelineView

KIND = ("v1", "Service")


def gateway_selector(pipeline: str) -> dict[str, str]:
    """Return the labels that select the gateway pods of a pipeline."""
    return {APP_INSTANCE: pipeline, LABEL_PIPELINE: pipeline, APP_COMPONENT: "gateway"}


def client_service(view: PipelineView) -> Manifest:
    """Return the Service that clients reach."""
    wanted = view.spec.gateway.service
    spec: Manifest = {
        "type": wanted.type,
        "selector": gateway_selector(view.name),
        "ports": [
            _port("grpc", wanted.grpc_port, GATEWAY_GRPC_PORT, "kubernetes.io/h2c"),
            _port("http", wanted.http_port, GATEWAY_HTTP_PORT, "http"),
        ],
        **_COMMON,
    }
    if wanted.type != "ClusterIP":
        spec["externalTrafficPolicy"] = "Cluster"
    if wanted.type == "LoadBalancer":
        spec["allocateLoadBalancerNodePorts"] = True
    return manifest(
        view.pipeline,
        KIND,
        gateway_name(view.name),
        {"spec": spec},
        labels={APP_COMPONENT: "gateway"},
        annotations=wanted.annotations,
    )


def control_service(view: PipelineView) -> Manifest:
    """Return the headless Service by which groups find every gateway.

    Addresses of gateways that are not ready are published: they become ready once groups have
    registered with them.
    """
    spec = _headless(gateway_selector(view.name), [_port("control", CONTROL_PORT, CONTROL_PORT)])
    return manifest(
        view.pipeline,
        KIND,
        control_service_name(view.name),
        {"spec": spec | {"publishNotReadyAddresses": True}},
        labels={APP_COMPONENT: "gateway"},
    )


def group_services(view: PipelineView) -> list[Manifest]:
    """Return the headless Service of every process group: names for its pods, for people and
    metrics. Edges dial addresses that pods registered with gateways, never a Service."""
    processes = dict.fromkeys(process for one in view.pods.shapes for process in one.processes)
    return [_group_service(view, process) for process in processes]


def _group_service(view: PipelineView, process: str) -> Manifest:
    selector = {
        APP_INSTANCE: view.name,
        LABEL_PIPELINE: view.name,
        f"{LABEL_PROCESS_PREFIX}{dns_name(process)}": "true",
    }
    ports = [
        _port("grpc", STAGE_PORT, STAGE_PORT),
        _port("metrics", METRICS_PORT, METRICS_PORT),
    ]
    return manifest(
        view.pipeline,
        KIND,
        group_service_name(view.name, process),
        {"spec": _headless(selector, ports)},
        labels={APP_COMPONENT: "stage"},
    )


_COMMON = {
    "sessionAffinity": "None",
    "internalTrafficPolicy": "Cluster",
    "ipFamilyPolicy": "SingleStack",
}


def _headless(selector: dict[str, str], ports: list[dict[str, Any]]) -> Manifest:
    return {
        "type": "ClusterIP",
        "clusterIP": "None",
        "clusterIPs": ["None"],
        "selector": selector,
        "ports": ports,
        **_COMMON,
    }


def _port(name: str, number: int, target: int, protocol: str = "") -> dict[str, Any]:
    port: dict[str, Any] = {
        "name": name,
        "port": number,
        "targetPort": target,
        "protocol": "TCP",
    }
    return port | {"appProtocol": protocol} if protocol else port
