"""The door of a pipeline: gateway pods, their Service, who may enter."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from omni_operator.api.base import ATOMIC_LIST, ApiModel, Name, Port, Rule, rules
from omni_operator.api.groups import Drain, PodTemplate, Resources, Toleration
from omni_operator.names import GATEWAY_GRPC_SERVICE_PORT, GATEWAY_HTTP_PORT


class GatewayService(ApiModel):
    """The Service that clients reach."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Service."""
    grpc_port: Port = GATEWAY_GRPC_SERVICE_PORT
    """Port of the gRPC API."""
    http_port: Port = GATEWAY_HTTP_PORT
    """Port of the OpenAI-compatible HTTP API."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the Service, for load balancers."""


class GatewayAuth(ApiModel):
    """Who may send requests. Without a Secret everyone who reaches the gateway may."""

    api_key_secret: Name | None = None
    """Secret whose values are the accepted API keys."""


class GatewayTls(ApiModel):
    """Encryption between clients and gateway. Without a Secret it is off."""

    secret_name: Name | None = None
    """Secret of type kubernetes.io/tls with the gateway's certificate."""


class ParentRef(ApiModel):
    """A Gateway of the Gateway API."""

    name: Name
    """Name of the Gateway."""
    namespace: Name | None = None
    """Namespace of the Gateway; the object's own when absent."""
    section_name: str | None = None
    """Listener of the Gateway; all when absent."""


class GatewayRoute(ApiModel):
    """An HTTPRoute to the gateway, made where the cluster has that kind."""

    hostnames: tuple[str, ...] = Field((), json_schema_extra=ATOMIC_LIST)
    """Host names the route answers to; all of the Gateway when empty."""
    parent_refs: tuple[ParentRef, ...] = Field(min_length=1, json_schema_extra=ATOMIC_LIST)
    """Gateways the route attaches to."""


class Gateway(ApiModel):
    """Gateway pods. They hold no state that a client cannot retry."""

    replicas: int = Field(1, ge=1, le=100)
    """Gateway pods."""
    service: GatewayService = GatewayService()
    """The Service that clients reach."""
    resources: Resources = Resources()
    """CPU and memory of a gateway."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels a node must have."""
    tolerations: tuple[Toleration, ...] = Field((), json_schema_extra=ATOMIC_LIST)
    """Taints the gateway pods accept."""
    pod_template: PodTemplate = PodTemplate()
    """Patch of the gateway pods; the container is called gateway."""
    auth: GatewayAuth = GatewayAuth()
    """Who may send requests."""
    tls: GatewayTls = GatewayTls()
    """Encryption between clients and gateway."""
    route: GatewayRoute | None = None
    """HTTPRoute to the gateway; none when absent."""
    drain: Drain = Drain()
    """How long a gateway that stops waits for its requests."""


class IssuerRef(ApiModel):
    """An issuer of cert-manager."""

    name: Name
    """Name of the issuer."""
    kind: Literal["Issuer", "ClusterIssuer"] = "Issuer"
    """Kind of the issuer."""


class Certificates(ApiModel):
    """Mutual TLS between the pods of a pipeline."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "self.mode == 'CertManager' ? has(self.issuerRef) : !has(self.issuerRef)",
                "issuerRef belongs to mode CertManager, which needs it",
            )
        )
    )

    mode: Literal["Operator", "CertManager", "Off"] = "Operator"
    """Who issues: the operator with an authority per pipeline, cert-manager, or nobody."""
    issuer_ref: IssuerRef | None = None
    """Issuer of cert-manager."""

    @model_validator(mode="after")
    def _issuer_fits(self) -> Certificates:
        if (self.mode == "CertManager") != (self.issuer_ref is not None):
            raise ValueError("issuerRef belongs to mode CertManager, which needs it")
        return self


class PolicyPeer(ApiModel):
    """Pods that may reach the gateway."""

    namespace_labels: dict[str, str] = Field(default_factory=dict)
    """Labels of their namespace; the object's own namespace when empty."""
    pod_labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the pods; all of the namespace when empty."""


class NetworkPolicy(ApiModel):
    """Which connections pods accept."""

    enabled: bool = True
    """Whether NetworkPolicies are made: stage ports open to the pipeline's own pods only."""
    clients: tuple[PolicyPeer, ...] = Field((), json_schema_extra=ATOMIC_LIST)
    """Who may reach the gateway; everyone when empty."""
    monitoring: PolicyPeer | None = None
    """Who may reach the metrics ports; everyone when absent."""
