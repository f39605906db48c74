"""What a model's author declares: a pipeline class with its stages.

Topology exists only here, in code. Files, objects and flags override the settings of declared
stages; they never add, remove or rewire one. That is why every field below is either a *setting* or
*topology*, and why only settings have a public path.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from omni_config.errors import ConfigError, PlanOnlyError, Problem
from omni_config.settings import (
    CommConfig,
    EndpointConfig,
    EngineArgs,
    FactoryArgs,
    Fraction,
    MpsMode,
    MpsQuota,
    PlacementConfig,
    PositiveInt,
    ProcessConfig,
    Settings,
    StreamDeliveryConfig,
    WeightShareMode,
)
from omni_config.units import ByteCount

if TYPE_CHECKING:
    from omni_config.planning.placement import PlacementPlan

CPU_COUNT = "<CPU_COUNT>"
"""Stands in an environment value for the number of CPUs the started process may use."""

Names = tuple[str, ...]
ChatFeature = Literal["tools", "response_format", "logprobs", "logit_bias"]
GpuId = Annotated[int, Field(strict=True)]


def _names(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class StageConfig(Settings):
    """One stage: its place in the graph (topology, in code only) and its settings.

    Hooks (`route_fn`, `merge_fn`, …) and `factory_path` are import paths, so that reading a
    configuration never imports what runs it.
    """

    TOPOLOGY: ClassVar[Mapping[str, str]] = {
        "name": "a stage name is its address; the config class declares it and every user-facing "
        "source addresses the stage by that name",
        **dict.fromkeys(
            ("next", "terminal", "route_fn"),
            "stage routing is part of the stage topology and is declared by the model's config "
            "class, not set from a user-facing source",
        ),
        **dict.fromkeys(
            ("stream_to", "stream_done_to_fn", "can_accept_stream_before_payload"),
            "stream wiring is part of the stage topology and is declared by the model's config "
            "class, not set from a user-facing source",
        ),
        **dict.fromkeys(
            ("wait_for", "wait_for_fn", "merge_fn"),
            "fan-in is part of the stage topology and is declared by the model's config class, "
            "not set from a user-facing source",
        ),
        "project_payload": "payload projections are part of the stage topology and are declared "
        "by the model's config class, not set from a user-facing source",
        "factory_path": "the factory is code chosen by the model's config class; an import path "
        "from a user-facing source is never executed",
    }
    """Fields only the config class may write, with the reason shown to who tries."""

    name: str = Field(description="Name of the stage; its address everywhere.")
    factory_path: str = Field(description="Import path `package.module.function` of the factory.")
    next: Names = Field((), description="Stages that receive the payload.")
    terminal: bool = Field(False, description="The payload leaves the pipeline here.")
    route_fn: str | None = Field(None, description="Import path; chooses among `next` per request.")
    stream_to: Names = Field((), description="Stages that receive the stream.")
    stream_done_to_fn: str | None = Field(
        None, description="Import path; chooses among `stream_to` who learns that the stream ended."
    )
    can_accept_stream_before_payload: bool = Field(
        False, description="A chunk may arrive before the payload."
    )
    wait_for: Names = Field((), description="Stages whose payloads are merged.")
    wait_for_fn: str | None = Field(
        None, description="Import path; narrows `wait_for` per request."
    )
    merge_fn: str | None = Field(None, description="Import path; merges the awaited payloads.")
    project_payload: dict[str, str] = Field(
        default_factory=dict, description="Import path per target; trims the payload for it."
    )

    gpu: GpuId | tuple[GpuId, ...] | None = Field(
        None, description="GPU id, or one per tensor-parallel rank; null runs on the CPU."
    )
    tp_size: PositiveInt = Field(1, description="Tensor-parallel ranks, each on its own GPU.")
    process: str | None = Field(
        None, description="Process group; stages of one group share an OS process."
    )
    gpu_memory_fraction: Fraction | None = Field(
        None, description="Share of a whole GPU's memory this stage may use, per rank."
    )
    total_reserve_bytes: ByteCount | None = Field(
        None, description="The same budget in bytes; excludes gpu_memory_fraction."
    )
    enforce_total_reserve: bool = Field(
        True, description="Cap the allocator of the process at the sum of its stages' reserves."
    )
    allow_child_processes: bool = Field(
        False, description="The stage starts processes of its own and needs a group to itself."
    )
    runtime_gpu_ids: tuple[GpuId, ...] | None = Field(
        None, description="GPUs used by the stage's own child processes; the first equals gpu."
    )
    factory: FactoryArgs = Field(
        default_factory=FactoryArgs, description="Keyword arguments of the stage factory."
    )
    env: dict[str, str] = Field(
        default_factory=dict, description="Environment of the process; the shell's values win."
    )
    input_timeout_seconds: Annotated[float, Field(gt=0)] = Field(
        600.0,
        description="How long a request may wait for input that a stage before still owes it.",
    )
    comm: CommConfig = Field(
        default_factory=CommConfig, description="Limits of the edges that leave the stage."
    )

    _as_names = field_validator("next", "stream_to", "wait_for", mode="before")(_names)

    @field_validator("process")
    @classmethod
    def _trimmed(cls, value: str | None) -> str | None:
        return value.strip() if value is not None else None

    @property
    def gpu_ids(self) -> tuple[int, ...]:
        """GPU ids in rank order; empty for a CPU stage."""
        if self.gpu is None:
            return ()
        return self.gpu if isinstance(self.gpu, tuple) else (self.gpu,)

    @property
    def process_name(self) -> str:
        """The process group: as written, or the stage's own name for a tensor-parallel stage."""
        return self.process or self.name


class EngineStageConfig(StageConfig):
    """A stage whose factory drives an SGLang engine; only these have `engine.*`."""

    engine: EngineArgs = Field(
        default_factory=EngineArgs, description="Keyword arguments of SGLang's ServerArgs."
    )

    @field_validator("engine", mode="before")
    @classmethod
    def _cleared(cls, value: object) -> object:
        return {} if value is None else value


class PipelineConfig(Settings):
    """A pipeline. A model's author derives from it and declares `stages`.

    Class attributes are the author's: they are code, never settings.

    Raises:
        ConfigError: on construction, with every broken rule of the graph and of its settings.
    """

    architectures: ClassVar[Names] = ()
    """Values of `architectures` in a checkpoint's config.json that this pipeline serves."""
    model_types: ClassVar[Names] = ()
    """Values of `model_type`, used when the checkpoint names no architecture."""
    variant: ClassVar[str | None] = None
    """Name for `--variant`; null when the model has a single pipeline."""
    default_variant: ClassVar[bool] = True
    """Chosen when the checkpoint fits several variants and none is named."""
    plan_only: ClassVar[str | None] = None
    """Why the stages cannot run yet; null when they can."""
    refused_factory_keys: ClassVar[Mapping[str, str]] = {}
    """Settings that other servers of the model know, as `stage.key`, with why each is refused."""
    local_edges: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Pairs of stages that must share a process because they pass objects that cannot leave it."""
    tensor_parallel_stages: ClassVar[Names] = ()
    """Stages whose factory knows ranks; only these may have tp_size above 1. Empty: every engine
    stage."""
    weight_share_architectures: ClassVar[Names] = ()
    """Architectures audited for weight sharing; empty when nobody listed any."""
    env_floor: ClassVar[Mapping[str, str]] = {}
    """Environment the model wants in every process; `env_defaults` and the shell win."""
    admission_defaults: ClassVar[Mapping[str, int]] = {}
    """Values of engine.max_running_requests and engine.max_queued_requests where nobody writes
    them."""
    audio_sample_rate: ClassVar[int] = 0
    """Rate of the speech it makes, in hertz; 0 when it makes none."""
    terminal_stages_fn: ClassVar[str | None] = None
    """Import path; chooses the terminal stages per request among the static ones."""
    stage_parameters: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """What a request may set for single stages: for each, the name that a parameter has in a
    request by the stage's own word for it."""
    terminal_modalities: ClassVar[Mapping[str, str]] = {}
    """What each terminal stage makes, such as `text` or `audio`, by its name."""
    chat_features: ClassVar[tuple[ChatFeature, ...]] = ()
    """What its stages act on beyond messages and sampling; a gateway refuses the others by name."""
    warm_up_fn: ClassVar[str | None] = None
    """Import path; returns requests by name, each of which must be answered before the pipeline
    counts as ready. Null: it is ready as soon as every stage is."""

    TOPOLOGY: ClassVar[Mapping[str, str]] = {
        "config_cls": "it is the name of the class that reads the configuration; choose the class "
        "with config_cls at the top of a file or with --variant",
        "entry_stage": "the entry stage is part of the stage topology and is declared by the "
        "model's config class, not set from a user-facing source",
        "placement_policy": "the placement policy is a safety check of the model and cannot be "
        "replaced or switched off by a setting",
        "terminal_stages_fn": "the choice of terminal stages is code of the model's config class; "
        "an import path from a user-facing source is never executed",
    }

    model_path: str = Field(description="Local directory or hub id of the checkpoint.")
    name: str | None = Field(
        None, validate_default=False, description="Name of the pipeline; model_path when null."
    )
    stages: tuple[SerializeAsAny[StageConfig], ...] = Field((), description="The declared stages.")
    entry_stage: str | None = Field(None, description="First stage; the first declared when null.")
    processes: dict[str, ProcessConfig] = Field(
        default_factory=dict, description="Replication per process group."
    )
    env_defaults: dict[str, str] = Field(
        default_factory=dict,
        description="Environment of every process; a stage's env and the shell win.",
    )
    mps: MpsMode = Field("off", description="NVIDIA MPS for processes that share a GPU.")
    mps_quota: MpsQuota = Field(
        default_factory=MpsQuota, description="Limits of each process that shares a GPU by MPS."
    )
    weight_share: WeightShareMode = Field(
        "off", description="Replicas on one device hold one copy of the weights."
    )
    placement: PlacementConfig = Field(
        default_factory=PlacementConfig, description="Limits every GPU must keep."
    )
    endpoints: EndpointConfig = Field(
        default_factory=EndpointConfig, description="Where processes of one host meet."
    )
    stream_delivery: StreamDeliveryConfig = Field(
        default_factory=StreamDeliveryConfig, description="Bounds on unread output."
    )

    @classmethod
    def declare(cls) -> tuple[StageConfig, ...]:
        """Return the stages of this pipeline; the author overrides it. Order is construction
        order."""
        return ()

    @classmethod
    def declared_stages(cls) -> tuple[StageConfig, ...]:
        """Return `declare()`, built once per class."""
        cached = cls.__dict__.get("_declared")
        if cached is None:
            cached = cls.declare()
            cls._declared = cached
        return cached

    _declared: ClassVar[tuple[StageConfig, ...]]

    def stage_factory_kwargs(self, stage: StageConfig) -> dict[str, object]:
        """Return the author channel: factory arguments computed from the resolved configuration."""
        return {}

    def derived_engine(self, stage: StageConfig) -> dict[str, object]:
        """Return `engine.*` keys that follow from other settings; they fill gaps, a written key
        wins."""
        return {}

    def stage_env(self, stage: StageConfig) -> dict[str, str]:
        """Return environment the model wants for one stage; whatever a user wrote wins.

        A value may be `CPU_COUNT`, which whoever starts the process fills in.
        """
        return {}

    def placement_problems(self, placement: PlacementPlan) -> list[Problem]:
        """Return what the model itself forbids about a `PlacementPlan`."""
        return []

    @model_validator(mode="before")
    @classmethod
    def _with_declared_stages(cls, data: object) -> object:
        if not isinstance(data, Mapping) or "stages" in data:
            return data
        return {**data, "stages": cls.declared_stages()}

    @model_validator(mode="after")
    def _keeps_every_rule(self) -> Self:
        from omni_config.rules import pipeline_problems

        problems = pipeline_problems(self)
        if problems:
            raise ConfigError(problems)
        return self

    @property
    def config_cls(self) -> str:
        """Name of the class, as `config_cls` in a file selects it."""
        return type(self).__name__

    @property
    def display_name(self) -> str:
        """`name`, or the model path when no name was written."""
        return self.name if self.name is not None else self.model_path

    @property
    def entry(self) -> str:
        """Name of the stage that receives a request first."""
        return self.entry_stage or self.stages[0].name

    @property
    def terminals(self) -> Names:
        """Names of the terminal stages, in declaration order."""
        return tuple(stage.name for stage in self.stages if stage.terminal)

    @cached_property
    def by_name(self) -> Mapping[str, StageConfig]:
        """The stages by name."""
        return {stage.name: stage for stage in self.stages}

    def replicas(self, stage: StageConfig) -> int:
        """Return how many copies of a stage run: those of its process group."""
        policy = self.processes.get(stage.process_name)
        return policy.num_replicas if policy is not None else 1

    def require_runnable(self) -> None:
        """Refuse to start a pipeline whose stages cannot run yet.

        Raises:
            PlanOnlyError: the class is plan-only.
        """
        if self.plan_only is not None:
            raise PlanOnlyError(self.config_cls, self.plan_only)


def engine_of(stage: StageConfig) -> EngineArgs:
    """Return `engine.*` of a stage, empty when it drives no engine."""
    return stage.engine if isinstance(stage, EngineStageConfig) else EngineArgs.model_validate({})
