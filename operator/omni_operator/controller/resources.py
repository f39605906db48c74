"""The kinds the operator touches, and where the API server keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from omni_operator import names
from omni_operator.plan import capabilities


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of the API.

    Attributes:
        group: API group; empty for the core group.
        needs: name in `Capabilities.kinds` without which the kind is not used; empty for kinds
            that every supported cluster serves.
    """

    group: str
    version: str
    kind: str
    plural: str
    needs: str = ""

    @property
    def api_version(self) -> str:
        """`apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, sub: str = "") -> str:
        """Return the URL path of a collection, an object or a subresource of one."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if namespace is not None:
            parts.append(f"namespaces/{quote(namespace)}")
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name))
        if sub:
            parts.append(sub)
        return "/".join(parts)


PIPELINES = Resource(names.GROUP, names.VERSION, names.KIND, names.PLURAL)
GROUPS = Resource(names.GROUP, names.VERSION, names.SCALE_KIND, names.SCALE_PLURAL)
PODS = Resource("", "v1", "Pod", "pods")
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
SECRETS = Resource("", "v1", "Secret", "secrets")
SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts")
DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments")
EVENTS = Resource("", "v1", "Event", "events")
LEASES = Resource("coordination.k8s.io", "v1", "Lease", "leases")
NODES = Resource("", "v1", "Node", "nodes")
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "DeviceClass", "deviceclasses")

_DRA = "DeviceClass.resource.k8s.io"
OWNED: tuple[Resource, ...] = (
    CONFIG_MAPS,
    DEPLOYMENTS,
    GROUPS,
    Resource("", "v1", "Service", "services"),
    SERVICE_ACCOUNTS,
    Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
    Resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    Resource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", _DRA),
    Resource("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", _DRA),
    Resource("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects", capabilities.SCALED_OBJECT),
    Resource("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors", capabilities.POD_MONITOR),
    Resource("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes", capabilities.HTTP_ROUTE),
    Resource("cert-manager.io", "v1", "Certificate", "certificates", capabilities.CERTIFICATE),
)
"""Kinds of owned objects that the operator watches. The Secret with a pipeline's certificates is
not among them: the operator may write Secrets and not read them."""


def served(resources: Iterable[Resource], cluster: capabilities.Capabilities) -> list[Resource]:
    """Return the resources that a cluster serves."""
    kinds = set(cluster.kinds) | ({_DRA} if cluster.device_classes is not None else set())
    return [one for one in resources if not one.needs or one.needs in kinds]


_BY_KIND: Mapping[tuple[str, str], Resource] = {
    (one.api_version, one.kind): one for one in (*OWNED, PIPELINES, PODS, SECRETS, EVENTS, LEASES)
}


def resource_of(manifest: Mapping[str, Any]) -> Resource:
    """Return the resource of an object.

    Raises:
        KeyError: the operator has no such kind.
    """
    return _BY_KIND[manifest["apiVersion"], manifest["kind"]]
