"""`status` of an OmniPipeline: everything the operator answers. Values are short on purpose, so
that `kubectl describe` stays one screen."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, Field

from omni_operator.api.base import ATOMIC_LIST, ApiModel, map_list


class StatusModel(ApiModel):
    """A group of status fields; fields of another operator version are passed over."""

    model_config = ConfigDict(extra="ignore")


class Condition(StatusModel):
    """One aspect of the pipeline's state, in Kubernetes' usual form."""

    type: str = Field(min_length=1, max_length=316)
    """Name of the aspect, such as Ready."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: str = Field(min_length=1, max_length=1024)
    """One word for programs."""
    message: str = Field("", max_length=32768)
    """A sentence for people."""
    last_transition_time: datetime
    """When status changed last."""
    observed_generation: int = 0
    """Generation of the spec it speaks of."""


class RevisionStatus(StatusModel):
    """Revisions of the whole pipeline, and how they were rendered."""

    current: str = ""
    """Newest revision of which a complete path was routable."""
    update: str = ""
    """Revision the spec asks for; equal to current once the rollout is over."""
    render_version: str = ""
    """Version of the operator's rendering that the updated revision uses."""


class GroupStatus(StatusModel):
    """One pod shape: a process group, or the groups that share a pod."""

    name: str
    """Name of the pod shape; a group's own when it has its pods to itself."""
    processes: tuple[str, ...] = Field((), json_schema_extra=ATOMIC_LIST)
    """Process groups in the pod."""
    sharing: str = ""
    """How the pod gets its GPUs."""
    revision: str = ""
    """Revision of the pod shape that the spec asks for."""
    desired: int = 0
    """Pods wanted."""
    ready: int = 0
    """Pods whose containers are ready."""
    routable: int = 0
    """Pods that take requests."""
    updated: int = 0
    """Routable pods of the wanted revision."""
    draining: int = 0
    """Pods that finish their requests before they go."""
    in_flight: int | None = None
    """Requests that draining pods still finish; absent when none drains or no gateway can tell."""
    mps: str = ""
    """Processes attached to the MPS daemon, such as attached 3/3."""


class ChangedSetting(StatusModel):
    """A setting that is not the model's default."""

    path: str
    """Dotted path."""
    value: str = ""
    """Its value, as YAML."""
    from_: str = Field("", alias="from")
    """Who set it: source, place, field manager."""
    over: str = ""
    """What that superseded, strongest first, the model's default last."""


class ConfigStatus(StatusModel):
    """The resolved configuration."""

    hash: str = ""
    """Hash of all settings."""
    config_map: str = ""
    """ConfigMap with all settings and who set each of them."""
    changed: tuple[ChangedSetting, ...] = Field((), json_schema_extra=map_list("path"))
    """Settings that are not defaults; at most 64."""
    omitted: int = 0
    """Changed settings that did not fit into the list."""


class SharingStatus(StatusModel):
    """How groups share GPUs."""

    mode: str = ""
    """Mode in use."""
    reason: str = ""
    """Why it was chosen, or what the cluster lacks."""


class ModelStatus(StatusModel):
    """The checkpoint."""

    source: str = ""
    """Where it comes from."""
    phase: str = ""
    """Downloading, Ready, or empty when nothing is downloaded."""
    progress: str = ""
    """Bytes fetched of all bytes."""


class ScaleStatus(StatusModel):
    """What the scale subresource reports."""

    replicas: int = 0
    """Pods of the group."""
    selector: str = ""
    """Label selector of its pods."""


class OmniPipelineStatus(StatusModel):
    """The observed state of a pipeline."""

    observed_generation: int = 0
    """Generation of the spec that the operator acted on last."""
    model: ModelStatus = ModelStatus()
    """The checkpoint."""
    groups_ready: str = ""
    """Pod shapes with all their pods routable, of all, such as 6/7."""
    gpus: int = 0
    """GPUs that the pipeline asks for."""
    revision: RevisionStatus = RevisionStatus()
    """Revisions of the whole pipeline."""
    gpu_sharing: SharingStatus = SharingStatus()
    """How groups share GPUs."""
    groups: tuple[GroupStatus, ...] = Field((), json_schema_extra=map_list("name"))
    """One row per pod shape."""
    config: ConfigStatus = ConfigStatus()
    """The resolved configuration."""
    scale: ScaleStatus = ScaleStatus()
    """What the scale subresource reports."""
    gateway_replicas: int = 0
    """Gateway pods that are ready."""
    conditions: tuple[Condition, ...] = Field((), json_schema_extra=map_list("type"))
    """Aspects of the state; Ready sums them up."""

    def condition(self, type_: str) -> Condition | None:
        """Return the condition of a type, null when it was never reported."""
        return next((one for one in self.conditions if one.type == type_), None)
