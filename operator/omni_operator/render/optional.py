"""Objects that exist only when asked for, or where the cluster has their kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omni_operator.names import (
    API_VERSION,
    APP_COMPONENT,
    APP_INSTANCE,
    LABEL_PIPELINE,
    LABEL_PROCESS_PREFIX,
    SCALE_KIND,
    cache_claim_name,
    dns_name,
    gateway_name,
    object_name,
    tls_secret_name,
    tls_server_name,
)
from omni_operator.plan.capabilities import CERTIFICATE, HTTP_ROUTE, POD_MONITOR, SCALED_OBJECT
from omni_operator.plan.shapes import PodShape
from omni_operator.render.manifest import Manifest, manifest
from omni_operator.render.view import PipelineView

QUEUE_METRIC = "omnipipe_group_queued_requests"
"""Requests that wait in a process group, per pod; what autoscalers aim at."""


def scale_objects(view: PipelineView, replicas: Mapping[str, int]) -> list[Manifest]:
    """Return what scales: an OmniGroup per shape whose replicas are not fixed, and its autoscaler.

    Args:
        replicas: those that live OmniGroups ask for, by shape. Whoever scales wrote them, and the
            manifest repeats them, because a field that is left out would fall back to a default.
    """
    found: list[Manifest] = []
    for shape in view.pods.shapes:
        if not shape.settings.scaling.is_dynamic:
            continue
        count = replicas.get(shape.name, shape.settings.scaling.replicas)
        found.append(_omni_group(view, shape, count))
        if shape.settings.scaling.max_replicas is not None:
            found.append(_autoscaler(view, shape))
    return found


def group_selector(view: PipelineView, shape: PodShape) -> str:
    """Return the label selector of a shape's pods, of all revisions, as text."""
    process = dns_name(shape.processes[0])
    return f"{LABEL_PIPELINE}={view.name},{LABEL_PROCESS_PREFIX}{process}=true"


def omni_group_name(view: PipelineView, shape: PodShape) -> str:
    """Return the name of a shape's OmniGroup and of its autoscaler."""
    return object_name(view.name, shape.name)


def model_cache_claim(view: PipelineView) -> Manifest | None:
    """Return the volume claim of the model cache. It outlives the pipeline: it has no owner."""
    cache = view.spec.model_cache
    if cache is None or cache.size is None:
        return None
    spec: Manifest = {
        "accessModes": [cache.access_mode],
        "resources": {"requests": {"storage": cache.size}},
        "volumeMode": "Filesystem",
    }
    if cache.storage_class_name is not None:
        spec["storageClassName"] = cache.storage_class_name
    kind = ("v1", "PersistentVolumeClaim")
    claim = manifest(view.pipeline, kind, cache_claim_name(view.name), {"spec": spec})
    del claim["metadata"]["ownerReferences"]
    return claim


def pod_monitor(view: PipelineView) -> Manifest | None:
    """Return the PodMonitor of all pods, null where the cluster has no such kind."""
    if POD_MONITOR not in view.cluster.kinds:
        return None
    most = max(sum(len(it.groups) for it in one.containers) for one in view.pods.shapes)
    names = ["metrics", *(f"metrics-{index}" for index in range(1, most))]
    spec = {
        "selector": {"matchLabels": {APP_INSTANCE: view.name, LABEL_PIPELINE: view.name}},
        "podMetricsEndpoints": [{"port": name, "path": "/metrics"} for name in names],
        "podTargetLabels": [LABEL_PIPELINE, APP_COMPONENT],
    }
    kind = ("monitoring.coreos.com/v1", "PodMonitor")
    return manifest(view.pipeline, kind, object_name(view.name, "pods"), {"spec": spec})


def http_route(view: PipelineView) -> Manifest | None:
    """Return the HTTPRoute to the gateway, null when none is asked for or possible."""
    route = view.spec.gateway.route
    if route is None or HTTP_ROUTE not in view.cluster.kinds:
        return None
    parents = [
        {
            "group": "gateway.networking.k8s.io",
            "kind": "Gateway",
            **one.model_dump(by_alias=True, exclude_none=True),
        }
        for one in route.parent_refs
    ]
    backend = {
        "group": "",
        "kind": "Service",
        "name": gateway_name(view.name),
        "port": view.spec.gateway.service.http_port,
        "weight": 1,
    }
    path = {"type": "PathPrefix", "value": "/"}
    spec: Manifest = {
        "parentRefs": parents,
        "rules": [{"matches": [{"path": path}], "backendRefs": [backend]}],
    }
    if route.hostnames:
        spec["hostnames"] = list(route.hostnames)
    kind = ("gateway.networking.k8s.io/v1", "HTTPRoute")
    return manifest(view.pipeline, kind, gateway_name(view.name), {"spec": spec})


def certificate(view: PipelineView) -> Manifest | None:
    """Return cert-manager's Certificate of the pods, null in other modes."""
    wanted = view.spec.certificates
    if wanted.issuer_ref is None or CERTIFICATE not in view.cluster.kinds:
        return None
    issuer = wanted.issuer_ref
    name = tls_secret_name(view.name)
    spec = {
        "secretName": name,
        "dnsNames": [tls_server_name(view.name, view.namespace)],
        "usages": ["digital signature", "key encipherment", "server auth", "client auth"],
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        "issuerRef": {"name": issuer.name, "kind": issuer.kind, "group": "cert-manager.io"},
    }
    return manifest(view.pipeline, ("cert-manager.io/v1", "Certificate"), name, {"spec": spec})


def _omni_group(view: PipelineView, shape: PodShape, replicas: int) -> Manifest:
    name = omni_group_name(view, shape)
    body = {"spec": {"replicas": replicas}}
    return manifest(view.pipeline, (API_VERSION, SCALE_KIND), name, body)


def _autoscaler(view: PipelineView, shape: PodShape) -> Manifest:
    if shape.settings.scaling.autoscaler == "ScaledObject":
        return _scaled_object(view, shape)
    scaling = shape.settings.scaling
    metric = {
        "type": "Pods",
        "pods": {
            "metric": {"name": QUEUE_METRIC},
            "target": {
                "type": "AverageValue",
                "averageValue": str(scaling.target_queued_requests),
            },
        },
    }
    spec = {
        "scaleTargetRef": _scale_target(view, shape),
        "minReplicas": scaling.min_replicas or 1,
        "maxReplicas": scaling.max_replicas,
        "metrics": [metric],
    }
    kind = ("autoscaling/v2", "HorizontalPodAutoscaler")
    return manifest(view.pipeline, kind, omni_group_name(view, shape), {"spec": spec})


def _scaled_object(view: PipelineView, shape: PodShape) -> Manifest:
    scaling = shape.settings.scaling
    process = dns_name(shape.processes[0])
    pods = f'namespace="{view.namespace}",pipeline="{view.name}",group="{process}"'
    query = f"sum({QUEUE_METRIC}{{{pods}}})"
    trigger: dict[str, Any] = {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": scaling.prometheus_address or "",
            "query": query,
            "threshold": str(scaling.target_queued_requests),
        },
    }
    spec = {
        "scaleTargetRef": _scale_target(view, shape),
        "minReplicaCount": scaling.min_replicas or 1,
        "maxReplicaCount": scaling.max_replicas,
        "triggers": [trigger],
    }
    kind = ("keda.sh/v1alpha1", "ScaledObject")
    return manifest(view.pipeline, kind, omni_group_name(view, shape), {"spec": spec})


def _scale_target(view: PipelineView, shape: PodShape) -> dict[str, str]:
    name = omni_group_name(view, shape)
    return {"apiVersion": API_VERSION, "kind": SCALE_KIND, "name": name}


def missing_kinds(view: PipelineView) -> dict[str, str]:
    """Return what the object asks for and the cluster has no kind for: kind to field."""
    wanted: dict[str, str] = {}
    for shape in view.pods.shapes:
        scaling = shape.settings.scaling
        if scaling.max_replicas is not None and scaling.autoscaler == "ScaledObject":
            wanted[SCALED_OBJECT] = f"spec.groups.{shape.processes[0]}.scaling.autoscaler"
    if view.spec.gateway.route is not None:
        wanted[HTTP_ROUTE] = "spec.gateway.route"
    if view.spec.certificates.mode == "CertManager":
        wanted[CERTIFICATE] = "spec.certificates.mode"
    return {kind: field for kind, field in wanted.items() if kind not in view.cluster.kinds}
