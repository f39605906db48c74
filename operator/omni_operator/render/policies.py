"""What protects a pipeline: an account without rights, disruption budgets, network policies."""

from __future__ import annotations

from typing import Any

from omni_operator.api.gateway import PolicyPeer
from omni_operator.names import (
    APP_COMPONENT,
    APP_INSTANCE,
    CONTROL_PORT,
    GATEWAY_GRPC_PORT,
    GATEWAY_HTTP_PORT,
    HEALTH_PORT,
    LABEL_PIPELINE,
    METRICS_PORT,
    STAGE_PORT,
    gateway_name,
    object_name,
    service_account_name,
)
from omni_operator.plan.policy import step_limits
from omni_operator.plan.shapes import PodShape
from omni_operator.render.manifest import Manifest, manifest
from omni_operator.render.pod import shape_selector
from omni_operator.render.services import gateway_selector
from omni_operator.render.view import PipelineView

ACCOUNT_KIND = ("v1", "ServiceAccount")
BUDGET_KIND = ("policy/v1", "PodDisruptionBudget")
POLICY_KIND = ("networking.k8s.io/v1", "NetworkPolicy")


def service_account(view: PipelineView) -> Manifest:
    """Return the account of all pods. It has no rights and its token is not mounted."""
    body = {"automountServiceAccountToken": False}
    return manifest(view.pipeline, ACCOUNT_KIND, service_account_name(view.name), body)


def disruption_budgets(view: PipelineView) -> list[Manifest]:
    """Return a budget per pod shape and one for gateways: evictions take few pods at a time.

    One pod may always go, even a single one: a budget of zero would block a node's drain for ever,
    and the pod finishes its requests first.
    """
    budgets = [_shape_budget(view, shape) for shape in view.pods.shapes]
    gateways = _budget(
        view, gateway_name(view.name), gateway_selector(view.name), allowed=1, component="gateway"
    )
    return [*budgets, gateways]


def _shape_budget(view: PipelineView, shape: PodShape) -> Manifest:
    limits = step_limits(view.spec.rollout, shape.settings.rollout, shape.replicas)
    return _budget(
        view,
        object_name(view.name, shape.name),
        shape_selector(view.name, shape.name),
        allowed=max(1, limits.max_unavailable),
        component="stage",
    )


def _budget(
    view: PipelineView, name: str, selector: dict[str, str], *, allowed: int, component: str
) -> Manifest:
    spec = {
        "maxUnavailable": allowed,
        "selector": {"matchLabels": selector},
        # A pod that is not routable serves nobody, so it must not hold a node's drain up.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    labels = {APP_COMPONENT: component}
    return manifest(view.pipeline, BUDGET_KIND, name, {"spec": spec}, labels=labels)


def network_policies(view: PipelineView) -> list[Manifest]:
    """Return the policies: stage ports for the pipeline's own pods, gateway ports for clients."""
    if not view.spec.network_policy.enabled:
        return []
    return [_stage_policy(view), _gateway_policy(view)]


def _stage_policy(view: PipelineView) -> Manifest:
    most = max(len(one.containers) for one in view.pods.shapes)
    processes = max(sum(len(it.groups) for it in one.containers) for one in view.pods.shapes)
    rules = [
        _ingress([_range(STAGE_PORT, processes)], [_own_pods(view)]),
        _ingress([_range(METRICS_PORT, processes)], _monitoring(view)),
        # Probes come from the node, the operator's drains from its own namespace.
        _ingress([_range(HEALTH_PORT, most)], []),
    ]
    selector = {APP_INSTANCE: view.name, LABEL_PIPELINE: view.name, APP_COMPONENT: "stage"}
    return _policy(view, object_name(view.name, "stages"), selector, rules)


def _gateway_policy(view: PipelineView) -> Manifest:
    clients = [_peer(one) for one in view.spec.network_policy.clients]
    rules = [
        _ingress([_port(GATEWAY_GRPC_PORT), _port(GATEWAY_HTTP_PORT)], clients),
        # Groups register here; the operator asks here who is routable, by mutual TLS like they do.
        _ingress([_port(CONTROL_PORT), _port(HEALTH_PORT)], []),
        _ingress([_port(METRICS_PORT)], _monitoring(view)),
    ]
    name = object_name(view.name, "gateways")
    return _policy(view, name, gateway_selector(view.name), rules)


def _policy(
    view: PipelineView, name: str, selector: dict[str, str], rules: list[dict[str, Any]]
) -> Manifest:
    spec = {
        "podSelector": {"matchLabels": selector},
        "policyTypes": ["Ingress"],
        "ingress": rules,
    }
    return manifest(view.pipeline, POLICY_KIND, name, {"spec": spec})


def _ingress(ports: list[dict[str, Any]], peers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a rule; without peers everyone may connect."""
    rule: dict[str, Any] = {"ports": ports}
    return rule | {"from": peers} if peers else rule


def _port(number: int) -> dict[str, Any]:
    return {"port": number, "protocol": "TCP"}


def _range(first: int, count: int) -> dict[str, Any]:
    port = _port(first)
    return port | {"endPort": first + count - 1} if count > 1 else port


def _own_pods(view: PipelineView) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": {APP_INSTANCE: view.name, LABEL_PIPELINE: view.name}}}


def _monitoring(view: PipelineView) -> list[dict[str, Any]]:
    peer = view.spec.network_policy.monitoring
    return [] if peer is None else [_peer(peer)]


def _peer(peer: PolicyPeer) -> dict[str, Any]:
    pods = {"podSelector": {"matchLabels": peer.pod_labels} if peer.pod_labels else {}}
    if not peer.namespace_labels:
        return pods
    return pods | {"namespaceSelector": {"matchLabels": peer.namespace_labels}}
