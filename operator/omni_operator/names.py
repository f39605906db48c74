"""Every name the operator puts into a cluster, each with the sentence that justifies it.

Labels, annotations, ports and paths are a contract with dashboards, charts, NetworkPolicies and
people's habits; here they are written once.
"""

from __future__ import annotations

import hashlib
import re

GROUP = "omnipipe.dev"
"""API group of the project's kinds."""
VERSION = "v1alpha1"
"""The one served version: kopf has no conversion webhook."""
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "OmniPipeline"
PLURAL = "omnipipelines"
SCALE_KIND = "OmniGroup"
"""A replica count of one process group with a scale subresource: autoscalers aim at it, so their
target outlives every revision."""
SCALE_PLURAL = "omnigroups"

FIELD_MANAGER = "omnipipe-operator"
"""Owner of the fields the operator applies; `kubectl --show-managed-fields` names it."""
RENDER_VERSION = "1"
"""Raised when the same spec renders to other pods. A running revision keeps the one it was rendered
with, so an operator upgrade restarts nothing."""

APP_NAME = "app.kubernetes.io/name"
APP_INSTANCE = "app.kubernetes.io/instance"
APP_COMPONENT = "app.kubernetes.io/component"
APP_MANAGED_BY = "app.kubernetes.io/managed-by"
APP_LABELS = {APP_NAME: "omnipipe", APP_MANAGED_BY: FIELD_MANAGER}
"""Labels of every owned object; the operator watches what carries them."""
LABEL_PIPELINE = f"{GROUP}/pipeline"
"""Name of the OmniPipeline an object belongs to."""
LABEL_SHAPE = f"{GROUP}/group"
"""Pod shape: the process group, or the card whose groups share a pod."""
LABEL_REVISION = f"{GROUP}/revision"
"""Revision of the pod shape, 8 hexadecimal digits."""
LABEL_CARD = f"{GROUP}/card"
"""Shared GPU of the plan that a ResourceClaim stands for."""
LABEL_PROCESS_PREFIX = f"{GROUP}/process-"
"""`<prefix><process>: "true"` marks the pods that hold a process group; Services select by it."""

ANNOTATION_RENDER_VERSION = f"{GROUP}/render-version"
"""Render version a revision was made with."""
ANNOTATION_IMAGE = f"{GROUP}/image"
"""Image of a revision, before a podTemplate changed it."""
ANNOTATION_DEFAULT_IMAGE = f"{GROUP}/default-image"
"""`true` when a revision has the release's image because the spec named none; kept until the spec
changes."""
ANNOTATION_CONFIG_MAP = f"{GROUP}/config-map"
"""ConfigMap a revision was started with. It may be older than the newest one: a change that does
not touch the group must not restart it."""
ANNOTATION_CLAIM = f"{GROUP}/claim"
"""ResourceClaim that the pods of a revision share, if they share one."""
ANNOTATION_GPUS = f"{GROUP}/gpus"
"""Whole GPUs of one pod of a revision; of a shared claim, those of the claim."""
ANNOTATION_MPS_CLIENTS = f"{GROUP}/mps-clients"
"""On a stage pod with an MPS daemon: processes that are to attach to it."""
ANNOTATION_MANIFEST_HASH = f"{GROUP}/manifest-hash"
"""Hash of what was applied; shows fields that a newer manifest no longer sets."""
ANNOTATION_ROUTES = f"{GROUP}/routes"
"""On a gateway pod: hash of the routes that it should read. Kubelet refreshes the files of a pod
whose annotations change at once, and those of others about once a minute."""
ANNOTATION_DRAIN_STARTED = f"{GROUP}/drain-started"
"""On a pod: Unix seconds at which its drain began. Absent: it is not draining."""
ANNOTATION_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Kubernetes' own: a drained pod is removed before its siblings when its ReplicaSet shrinks."""
ANNOTATION_CREATED = f"{GROUP}/created"
"""Unix seconds at which a pipeline revision was first wanted; orders them."""

READINESS_GATE = f"{GROUP}/routable"
"""Pod condition set once every gateway can route to the pod, so Deployments and
PodDisruptionBudgets count routable pods and not merely running ones."""

DOWNLOAD_CONTAINER = "download"
"""Init container that fetches the checkpoint."""

STAGE_PORT = 50051
"""Edges between process groups (gRPC); the n-th process of a pod listens n above it."""
CONTROL_PORT = 50052
"""Registration of process groups with a gateway (gRPC)."""
GATEWAY_GRPC_PORT = 50050
"""gRPC API of a gateway, in its container."""
GATEWAY_GRPC_SERVICE_PORT = 8443
"""gRPC API of a gateway, on its Service."""
GATEWAY_HTTP_PORT = 8000
"""OpenAI-compatible HTTP API of a gateway, container and Service."""
METRICS_PORT = 9090
"""Prometheus metrics; the n-th process of a pod serves its own n above it."""
HEALTH_PORT = 8081
"""Start-up, liveness and drain over HTTP; the n-th container of a pod serves n above it."""

RUN_AS_USER = 10001
"""The one UID of all containers: MPS serves one user at a time, and `/dev/shm` is shared."""
CONFIG_DIR = "/etc/omnipipe"
"""The resolved configuration and the revision's provenance, read-only."""
CONFIG_FILE = "pipeline.yaml"
PROVENANCE_FILE = "provenance.json"
REVISION_FILE = "revision.json"
ROUTES_DIR = "/etc/omnipipe-routes"
"""Revisions a gateway may route to; a directory of its own because its content changes."""
ROUTES_FILE = "routes.json"
TLS_DIR = "/etc/omnipipe-tls"
"""Certificate, key and authority of the pipeline's mutual TLS."""
GATEWAY_TLS_DIR = "/etc/omnipipe-gateway-tls"
"""Certificate and key a gateway shows to its clients."""
GATEWAY_AUTH_DIR = "/etc/omnipipe-gateway-auth"
"""API keys a gateway accepts, one per file of a Secret."""
HUB_TOKEN_VARIABLE = "HF_TOKEN"
MODEL_DIR = "/models"
"""Model volume of a stage container."""
RUN_DIR = "/run/omnipipe"
"""Sockets and run state shared by the processes of one pod."""
TMP_DIR = "/tmp"
MPS_DIR = "/run/omnipipe-mps"
"""MPS pipe and log directories. Not /tmp/nvidia-mps, which container toolkits mount from the
host."""

NVIDIA_GPU = "nvidia.com/gpu"
NVIDIA_GPU_SHARED = "nvidia.com/gpu.shared"
NVIDIA_DEVICE_CLASS = "gpu.nvidia.com"

DNS_LABEL_LENGTH = 63
HASH_LENGTH = 8
_NOT_IN_DNS_LABEL = re.compile(r"[^a-z0-9-]+")


def dns_name(text: str) -> str:
    """Return text as a DNS label without length limit: `talker_ar@r0` gives `talker-ar-r0`."""
    return _NOT_IN_DNS_LABEL.sub("-", text.lower()).strip("-")


def object_name(*parts: str, limit: int = DNS_LABEL_LENGTH) -> str:
    """Join parts to a DNS label of at most `limit` characters.

    A longer one is cut and ends in a hash of the whole, so that two long names stay two names. The
    last part (a revision or a role) is kept whole.
    """
    name = "-".join(dns_name(part) for part in parts if part)
    if len(name) <= limit:
        return name
    last = dns_name(parts[-1])
    kept = limit - len(last) - HASH_LENGTH - 2
    return f"{name[:kept].rstrip('-')}-{short_hash(name)}-{last}"


def short_hash(text: str) -> str:
    """Return 8 hexadecimal digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


def config_map_name(pipeline: str, revision: str) -> str:
    """Return the name of the immutable ConfigMap of one pipeline revision."""
    return object_name(pipeline, "config", revision)


def workload_name(pipeline: str, shape: str, revision: str) -> str:
    """Return the name of the Deployment of one pod shape and revision."""
    return object_name(pipeline, shape, revision)


def gateway_name(pipeline: str) -> str:
    """Return the name of the gateway's Deployment and client Service."""
    return object_name(pipeline, "gateway")


def control_service_name(pipeline: str) -> str:
    """Return the name of the headless Service by which groups find every gateway."""
    return object_name(pipeline, "gateway-control")


def group_service_name(pipeline: str, process: str) -> str:
    """Return the name of a process group's headless Service."""
    return object_name(pipeline, process)


def routes_name(pipeline: str) -> str:
    """Return the name of the ConfigMap that tells gateways which revisions are complete."""
    return object_name(pipeline, "routes")


def tls_secret_name(pipeline: str) -> str:
    """Return the name of the Secret with the pipeline's mutual TLS certificate."""
    return object_name(pipeline, "tls")


def tls_server_name(pipeline: str, namespace: str) -> str:
    """Return the name in the certificate that every pod of a pipeline shows."""
    return f"{pipeline}.{namespace}.{GROUP}"


def cache_claim_name(pipeline: str) -> str:
    """Return the name of the PersistentVolumeClaim of a pipeline's model cache."""
    return object_name(pipeline, "models")


def service_account_name(pipeline: str) -> str:
    """Return the name of the ServiceAccount of all pods of a pipeline."""
    return object_name(pipeline, "pods")


def claim_name(pipeline: str, card: str, revision: str) -> str:
    """Return the name of a card's ResourceClaim or ResourceClaimTemplate."""
    return object_name(pipeline, card, "gpu", revision)


def pipeline_labels(pipeline: str, component: str | None = None) -> dict[str, str]:
    """Return the labels of an object that belongs to a pipeline."""
    labels = {**APP_LABELS, APP_INSTANCE: pipeline, LABEL_PIPELINE: pipeline}
    return labels if component is None else labels | {APP_COMPONENT: component}
