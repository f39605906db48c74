"""What a cluster offers, as far as plans depend on it."""

from __future__ import annotations

from dataclasses import dataclass

POD_MONITOR = "PodMonitor.monitoring.coreos.com"
HTTP_ROUTE = "HTTPRoute.gateway.networking.k8s.io"
SCALED_OBJECT = "ScaledObject.keda.sh"
CERTIFICATE = "Certificate.cert-manager.io"
OPTIONAL_KINDS = (POD_MONITOR, HTTP_ROUTE, SCALED_OBJECT, CERTIFICATE)
"""Kinds that are used where they exist, as `<Kind>.<group>`."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """A cluster as discovery and its nodes describe it.

    Attributes:
        version: minor version of the API server, such as 34 for 1.34.
        device_classes: names of DeviceClasses; null where Dynamic Resource Allocation
            (`resource.k8s.io/v1`) is not served.
        resources: extended resources that some node advertises, such as `nvidia.com/gpu`.
        kinds: those of `OPTIONAL_KINDS` that are served.
    """

    version: int = 34
    device_classes: frozenset[str] | None = None
    resources: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()

    @property
    def has_sidecars(self) -> bool:
        """Whether init containers may be restartable, which is what a sidecar is."""
        return self.version >= 29
