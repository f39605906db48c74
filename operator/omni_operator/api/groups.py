"""What Kubernetes must know about one process group beyond its settings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, WithJsonSchema, model_validator

from omni_operator.api.base import (
    ATOMIC_LIST,
    INT_OR_STRING,
    ApiModel,
    FreeObject,
    IntOrString,
    Quantities,
    Rule,
    Seconds,
    rules,
)

Percent = Annotated[str, Field(pattern=r"^(100|[1-9]?[0-9])%$")]
CountOrPercent = Annotated[
    Annotated[int, Field(ge=0)] | Percent, WithJsonSchema({INT_OR_STRING: True, "maxLength": 4})
]
"""Pods, as a number or as a percentage of the wanted ones."""

NO_STEP = "maxSurge and maxUnavailable must not both be zero: no rollout could take a step"


class Resources(ApiModel):
    """CPU and memory of a container. GPUs follow from the plan and are not written here."""

    requests: Quantities = Field(default_factory=dict)
    """Quantities the scheduler reserves."""
    limits: Quantities = Field(default_factory=dict)
    """Quantities the container may not exceed."""


class Toleration(ApiModel):
    """A taint that pods accept on a node."""

    key: str | None = None
    """Key of the taint; any when absent, then operator must be Exists."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Whether the value must be equal or the key merely exist."""
    value: str | None = None
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; any when absent."""
    toleration_seconds: int | None = None
    """How long a NoExecute taint is tolerated; for ever when absent."""


class Scaling(ApiModel):
    """How many pods hold the group, and who decides."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.minReplicas) || has(self.maxReplicas)",
                "minReplicas needs maxReplicas: without it there is no autoscaler",
            ),
            Rule(
                "!has(self.maxReplicas) || !has(self.minReplicas)"
                " || self.minReplicas <= self.maxReplicas",
                "minReplicas must not exceed maxReplicas",
            ),
            Rule(
                "!has(self.maxReplicas) || !self.external",
                "external means that an autoscaler of your own sets the replicas; leave out"
                " maxReplicas",
            ),
        )
    )

    replicas: int = Field(1, ge=0, le=1000)
    """Pods. Where an autoscaler decides, the number to start with."""
    min_replicas: int | None = Field(None, ge=1, le=1000)
    """Lower bound of the autoscaler; 1 when absent."""
    max_replicas: int | None = Field(None, ge=1, le=1000)
    """Upper bound; when set, the operator makes an autoscaler on the queue of each pod."""
    target_queued_requests: int = Field(4, ge=1)
    """Queued requests per pod that the autoscaler aims at."""
    autoscaler: Literal["HorizontalPodAutoscaler", "ScaledObject"] = "HorizontalPodAutoscaler"
    """Kind of autoscaler to make. ScaledObject needs KEDA and prometheusAddress."""
    prometheus_address: str | None = Field(None, pattern=r"^https?://")
    """Prometheus that KEDA asks for the queue."""
    external: bool = False
    """The replicas belong to whoever scales the OmniGroup of this group, such as your own KEDA."""

    @model_validator(mode="after")
    def _one_decider(self) -> Scaling:
        if self.min_replicas is not None and self.max_replicas is None:
            raise ValueError("minReplicas needs maxReplicas: without it there is no autoscaler")
        if self.min_replicas and self.max_replicas and self.min_replicas > self.max_replicas:
            raise ValueError("minReplicas must not exceed maxReplicas")
        if self.max_replicas is not None and self.external:
            raise ValueError(
                "external means that an autoscaler of your own sets the replicas; leave out"
                " maxReplicas"
            )
        return self

    @property
    def is_dynamic(self) -> bool:
        """Whether someone other than the spec sets the replicas after creation."""
        return self.external or self.max_replicas is not None


class GroupRollout(ApiModel):
    """How far a rollout may depart from the wanted number of pods."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.maxSurge) || !has(self.maxUnavailable)"
                " || !(string(self.maxSurge) in ['0', '0%']"
                " && string(self.maxUnavailable) in ['0', '0%'])",
                NO_STEP,
            )
        )
    )

    max_surge: CountOrPercent | None = None
    """Pods above the wanted number; 1 when absent, 0 in surge-free rollouts. Rounded up."""
    max_unavailable: CountOrPercent | None = None
    """Pods below the wanted number; 0 when absent, 1 in surge-free rollouts. Rounded down."""

    @model_validator(mode="after")
    def _can_step(self) -> GroupRollout:
        zeros = (0, "0%")
        if self.max_surge in zeros and self.max_unavailable in zeros:
            raise ValueError(NO_STEP)
        return self


class Drain(ApiModel):
    """What happens to requests in flight when a pod goes."""

    timeout_seconds: Seconds = 120
    """Longest time a pod finishes its requests; then they fail with a retryable error."""


class PodTemplateMetadata(ApiModel):
    """Metadata added to pods."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels added; those of omnipipe.dev and app.kubernetes.io are the operator's."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations added."""


class PodTemplate(ApiModel):
    """A patch of rendered pods: mappings merge by key, lists item by item where all items have a
    name (or mountPath, containerPort), other lists are replaced, null removes. The container of a
    group is called like the group; that of groups in one container is called groups. An init
    container without an image runs that of the stages."""

    metadata: PodTemplateMetadata = PodTemplateMetadata()
    """Labels and annotations to add."""
    spec: FreeObject = Field(default_factory=dict)
    """Fields of a pod's spec."""


class Group(ApiModel):
    """One process group. Groups that share a pod must agree on what belongs to the pod."""

    pod_template: PodTemplate = PodTemplate()
    """Patch of the pods of this group."""
    resources: Resources = Resources()
    """CPU and memory of the group's container."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels a node must have."""
    tolerations: tuple[Toleration, ...] = Field((), json_schema_extra=ATOMIC_LIST)
    """Taints the pods accept, besides that of GPU nodes."""
    shared_memory: IntOrString = "8Gi"
    """Size of the pod's /dev/shm; counts as memory of the pod."""
    scaling: Scaling = Scaling()
    """How many pods, and who decides."""
    rollout: GroupRollout = GroupRollout()
    """Pods above and below the wanted number during a rollout."""
    drain: Drain = Drain()
    """What happens to requests in flight when a pod goes."""
