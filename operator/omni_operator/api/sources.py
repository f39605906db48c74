"""Where a pipeline's settings and weights come from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue, WithJsonSchema, model_validator

from omni_operator.api.base import (
    PRESERVE_UNKNOWN,
    ApiModel,
    FreeObject,
    Name,
    Rule,
    rules,
)

SettingValue = Annotated[JsonValue, WithJsonSchema({PRESERVE_UNKNOWN: True})]
"""A value whose type the setting decides."""


class ProfileRef(ApiModel):
    """A ConfigMap with defaults, in the shape of spec.config, below the object's own settings."""

    name: Name
    """Name of a ConfigMap in the object's namespace."""
    key: str = Field("config.yaml", min_length=1, max_length=253)
    """Key of the ConfigMap whose text is the profile."""
    optional: bool = False
    """Whether the pipeline may start while the ConfigMap or the key does not exist."""


class SettingOverride(ApiModel):
    """One setting that beats spec.config, for patches by tools and in an emergency."""

    path: str = Field(min_length=1, max_length=512)
    """Dotted path such as thinker.engine.mem_fraction_static; the leading stages. may be left
    out."""
    value: SettingValue = None
    """The value; its type is that of the setting."""


class KeyRef(ApiModel):
    """One key of a Secret."""

    name: Name
    """Name of a Secret in the object's namespace."""
    key: str = Field("token", min_length=1, max_length=253)
    """Key of the Secret."""


class Model(ApiModel):
    """The checkpoint: a directory of a volume, or a repository that is downloaded once."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "has(self.path) != has(self.repo)",
                "set exactly one of path (a directory) and repo (a repository to download)",
            ),
            Rule(
                "!has(self.revision) || has(self.repo)",
                "revision belongs to repo; a directory has no revisions",
            ),
        )
    )

    path: str | None = Field(None, min_length=1, pattern=r"^/")
    """Directory as pods see it. Below /models when spec.model.volume or spec.modelCache is set."""
    repo: str | None = Field(None, pattern=r"^\w[\w.-]*/\w[\w.-]*$")
    """Repository of the Hugging Face hub, such as Qwen/Qwen3-Omni-30B-A3B-Instruct."""
    revision: str | None = Field(None, min_length=1)
    """Branch, tag or commit of the repository; main when absent."""
    volume: FreeObject | None = None
    """Volume source as in a pod (persistentVolumeClaim, nfs, image, …), mounted at /models."""
    read_only: bool = True
    """Whether the volume is mounted read-only. A download always writes to spec.modelCache."""
    token_secret_ref: KeyRef | None = None
    """Token for repositories that need one; read by the downloading container only."""

    @model_validator(mode="after")
    def _one_source(self) -> Model:
        if (self.path is None) == (self.repo is None):
            raise ValueError(
                "set exactly one of path (a directory) and repo (a repository to download)"
            )
        if self.revision is not None and self.repo is None:
            raise ValueError("revision belongs to repo; a directory has no revisions")
        return self


class Images(ApiModel):
    """Images of the containers. One that is absent is that of the operator's release."""

    stage: str | None = Field(None, min_length=1)
    """Image of every stage container."""
    gateway: str | None = Field(None, min_length=1)
    """Image of the gateway."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When nodes pull the images."""
    pull_secrets: tuple[Name, ...] = Field((), json_schema_extra={"x-kubernetes-list-type": "set"})
    """Names of Secrets with registry credentials."""


class ModelCache(ApiModel):
    """The volume that keeps downloaded checkpoints."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "has(self.claimName) != has(self.size)",
                "set exactly one of claimName (a claim that exists) and size (a claim to create)",
            ),
            Rule(
                "!has(self.storageClassName) || has(self.size)",
                "storageClassName belongs to size; an existing claim has a class already",
            ),
        )
    )

    claim_name: Name | None = None
    """PersistentVolumeClaim that exists already."""
    size: str | None = Field(None, pattern=r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$")
    """Size of a PersistentVolumeClaim to create, such as 100Gi; it outlives the pipeline."""
    storage_class_name: Name | None = None
    """Storage class of the claim to create; the cluster's default when absent."""
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = "ReadWriteMany"
    """Access mode of the claim to create. ReadWriteOnce keeps all pods on one node."""

    @model_validator(mode="after")
    def _one_claim(self) -> ModelCache:
        if (self.claim_name is None) == (self.size is None):
            raise ValueError(
                "set exactly one of claimName (a claim that exists) and size (a claim to create)"
            )
        if self.storage_class_name is not None and self.size is None:
            raise ValueError(
                "storageClassName belongs to size; an existing claim has a class already"
            )
        return self
