"""`spec` of an OmniPipeline: everything a user writes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, WithJsonSchema, model_validator

from omni_operator.api.base import ApiModel, JsonObject, Name, Rule, Seconds, map_list, rules
from omni_operator.api.config_schema import config_schema
from omni_operator.api.gateway import Certificates, Gateway, NetworkPolicy
from omni_operator.api.groups import Group
from omni_operator.api.sources import Images, Model, ModelCache, ProfileRef, SettingOverride
from omni_operator.names import NVIDIA_GPU

SharingMode = Literal["Auto", "Exclusive", "SharedClaim", "Sidecar", "InContainer", "DevicePlugin"]
MAX_GROUPS = 64
DEFAULT_GROUP = Group()
"""What holds for a process group of which nothing was written."""

_DRA_ONLY = "deviceClassName belongs to the modes Auto, SharedClaim and Sidecar"


class GpuSharing(ApiModel):
    """How groups that the plan puts on one GPU share it. A mode that the cluster cannot give is
    refused in the condition GPUSharingSupported; it is never replaced by another."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.deviceClassName) || self.mode in ['Auto', 'SharedClaim', 'Sidecar']",
                _DRA_ONLY,
            )
        )
    )

    mode: SharingMode = "Auto"
    """Auto chooses by the cluster. Exclusive: a GPU per group. SharedClaim: a pod per group, one
    ResourceClaim. Sidecar: a container per group, one claim, MPS daemon as sidecar. InContainer:
    one container with all groups. DevicePlugin: the cluster's own shared resource."""
    device_class_name: Name | None = None
    """DeviceClass of the GPUs for SharedClaim and Sidecar; gpu.nvidia.com when absent."""
    resource_name: str = Field(NVIDIA_GPU, min_length=1, max_length=253)
    """Extended resource of a whole GPU. In mode DevicePlugin the shared one, such as
    nvidia.com/gpu.shared."""

    @model_validator(mode="after")
    def _class_fits(self) -> GpuSharing:
        if self.device_class_name and self.mode not in ("Auto", "SharedClaim", "Sidecar"):
            raise ValueError(_DRA_ONLY)
        return self


class Scale(ApiModel):
    """The group that `kubectl scale` and the scale subresource of this object stand for."""

    group: str = Field(min_length=1, max_length=63)
    """Process group."""
    replicas: int = Field(1, ge=0, le=1000)
    """Its pods; beats groups.<group>.scaling.replicas."""


class Rollout(ApiModel):
    """How a new revision replaces the running one."""

    type: Literal["Surge", "SurgeFree"] = "Surge"
    """Surge starts new pods beside the old ones. SurgeFree drains old pods first and never holds
    more GPUs than the pipeline needs."""
    paused: bool = False
    """Leaves every pod as it is: no new revision starts, none goes."""
    history_limit: int = Field(3, ge=0, le=50)
    """Old revisions kept per group, without pods, for a quick way back."""
    progress_deadline_seconds: Seconds = 1800
    """Time without progress after which a rollout counts as stalled; it goes on all the same."""


class OmniPipelineSpec(ApiModel):
    """A pipeline of stages, served."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.model) || !has(self.config.model_path)",
                "set the checkpoint once: spec.model or spec.config.model_path",
            ),
            Rule(
                "has(self.model) || has(self.config.model_path)"
                " || (has(self.profileRefs) && size(self.profileRefs) > 0)",
                "name the checkpoint: spec.model, or spec.config.model_path",
            ),
        )
    )

    config: Annotated[JsonObject, WithJsonSchema(config_schema())]
    """Body of a configuration file, word for word: config_cls, model_path, stages and the rest."""
    profile_refs: tuple[ProfileRef, ...] = Field(
        (), max_length=16, json_schema_extra=map_list("name", "key")
    )
    """Defaults of a platform team, below spec.config."""
    overrides: tuple[SettingOverride, ...] = Field(
        (), max_length=256, json_schema_extra=map_list("path")
    )
    """Settings that beat spec.config."""
    model: Model | None = None
    """The checkpoint, when it is not named by spec.config.model_path."""
    model_cache: ModelCache | None = None
    """Volume that keeps downloaded checkpoints; without it each pod downloads its own."""
    images: Images = Images()
    """Images of the containers."""
    gpu_sharing: GpuSharing = GpuSharing()
    """How groups share a GPU."""
    groups: dict[str, Group] = Field(default_factory=dict, max_length=MAX_GROUPS)
    """What Kubernetes must know about a process group, by its name."""
    scale: Scale | None = None
    """The group that the scale subresource stands for."""
    gateway: Gateway = Gateway()
    """The door of the pipeline."""
    certificates: Certificates = Certificates()
    """Mutual TLS between the pods."""
    network_policy: NetworkPolicy = NetworkPolicy()
    """Which connections pods accept."""
    rollout: Rollout = Rollout()
    """How a new revision replaces the running one."""

    @model_validator(mode="after")
    def _one_checkpoint(self) -> OmniPipelineSpec:
        if self.model is not None and "model_path" in self.config:
            raise ValueError("set the checkpoint once: spec.model or spec.config.model_path")
        if self.model is None and "model_path" not in self.config and not self.profile_refs:
            raise ValueError("name the checkpoint: spec.model, or spec.config.model_path")
        return self

    def group(self, process: str) -> Group:
        """Return what was written about a process group, or the defaults."""
        return self.groups.get(process, DEFAULT_GROUP)
