"""The settings groups of a pipeline: what a file, an object or a flag may change.

Three consumers read them. The parent reads the top level of a stage (placement, process planning,
wiring); SGLang's `ServerArgs` reads `engine.*`; the stage factory reads `factory.*`. The group
decides who rules on an unknown key: here the parent refuses at once, the other two keep it for
their consumer.

Every model is frozen: a resolved configuration is a value, and whoever wants another one resolves
again.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from omni_config.units import ByteCount

PositiveInt = Annotated[int, Field(ge=1)]
NaturalInt = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]
OpenFraction = Annotated[float, Field(gt=0, lt=1)]
Text = Annotated[str, Field(min_length=1, pattern=r"\S")]

MpsMode = Literal["off", "on", "auto"]
WeightShareMode = Literal["off", "on"]


class Settings(BaseModel):
    """A group whose keys are all known: an unknown one is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class FreeSettings(BaseModel):
    """A group whose consumer knows more keys than are declared here; the rest passes through."""

    model_config = ConfigDict(extra="allow", frozen=True, validate_default=True)

    def free_keys(self) -> dict[str, object]:
        """Return the keys that are not declared fields, as written (null included)."""
        return dict(self.__pydantic_extra__ or {})

    def written(self) -> dict[str, object]:
        """Return the keys a consumer receives: declared ones that are not null, and every free
        one."""
        declared = {
            key: value
            for key in type(self).model_fields
            if (value := getattr(self, key)) is not None
        }
        return declared | self.free_keys()


class EngineArgs(FreeSettings):
    """`engine.*`: keyword arguments of SGLang's `ServerArgs`. Null means "not set" and is not
    forwarded."""

    mem_fraction_static: OpenFraction | None = Field(
        None, description="Share of device memory for weights and KV cache, above 0 and below 1."
    )
    max_running_requests: PositiveInt | None = Field(
        None, description="Most requests decoded at once."
    )
    max_total_tokens: PositiveInt | None = Field(
        None, description="Capacity of the KV cache in tokens."
    )
    cuda_graph_max_bs: PositiveInt | None = Field(
        None, description="Largest batch size captured as a CUDA graph."
    )
    disable_cuda_graph: bool | None = Field(None, description="Run without CUDA graphs.")
    enable_torch_compile: bool | None = Field(None, description="Compile the model with torch.")
    torch_compile_max_bs: PositiveInt | None = Field(
        None, description="Largest batch size compiled with torch."
    )
    cpu_offload_gb: NaturalInt | None = Field(
        None, description="Gigabytes of weights kept in host memory."
    )
    quantization: Text | None = Field(None, description="Quantization method.")
    disable_custom_all_reduce: bool | None = Field(
        None, description="Use NCCL instead of SGLang's all-reduce kernel."
    )
    kv_cache_bytes: ByteCount | None = Field(
        None,
        description="Bytes of KV cache per rank, such as 2GiB; read by placement, not ServerArgs.",
    )


class FactoryArgs(FreeSettings):
    """`factory.*`: keyword arguments of the stage's factory. Null means "use the factory's
    default"."""

    device: str | None = Field(None, description="Torch device.")
    dtype: str | None = Field(None, description="Torch dtype, such as bfloat16.")
    max_seq_len: PositiveInt | None = Field(None, description="Longest sequence in tokens.")
    video_fps: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Video frames sampled per second."
    )
    max_new_tokens: PositiveInt | None = Field(None, description="Most tokens generated.")
    context_length: PositiveInt | None = Field(None, description="Context window in tokens.")
    max_concurrency: PositiveInt | None = Field(None, description="Requests computed at once.")
    max_batch_size: PositiveInt | None = Field(None, description="Most requests in one batch.")
    max_batch_wait_ms: NaturalInt | None = Field(
        None, description="Milliseconds a batch waits for company."
    )
    enable_async_decode: bool | None = Field(
        None, description="Prepare step N+1 on the host while step N runs."
    )
    async_decode_min_batch_size: PositiveInt | None = Field(
        None, description="Smallest batch decoded asynchronously."
    )
    prefill_coalesce_requests: NaturalInt | None = Field(
        None, description="Requests gathered before a prefill; 0 gathers none."
    )
    prefill_coalesce_wait_ms: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Milliseconds a prefill waits to gather requests."
    )
    prefill_coalesce_when_idle: bool | None = Field(
        None, description="Gather requests even when nothing is decoding."
    )
    prefill_coalesce_requires_pending_builds: bool | None = Field(
        None, description="Gather only while requests are being built."
    )
    prefill_coalesce_after_builds_during_decode: bool | None = Field(
        None, description="While decoding, gather only after builds ended."
    )
    request_build_max_workers: PositiveInt | None = Field(
        None, description="Threads that build requests."
    )
    request_build_max_pending: PositiveInt | None = Field(
        None, description="Requests that may wait to be built."
    )
    encoder_mem_reserve: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None, description="Share of device memory left to encoders on the same device."
    )
    enable_partial_start: bool | None = Field(
        None, description="Start on the first streamed chunks instead of the whole input."
    )
    partial_start_min_chunks: PositiveInt | None = Field(
        None, description="Streamed chunks needed to start."
    )


class CommConfig(Settings):
    """Limits of the edges that leave a stage."""

    edge_credit_bytes: ByteCount = Field(
        64 << 20, description="Most unacknowledged bytes on one edge."
    )
    request_credit_bytes: ByteCount = Field(
        16 << 20, description="Most unacknowledged bytes of one request on one edge."
    )
    part_bytes: Annotated[ByteCount, Field(ge=4096, le=4 << 20)] = Field(
        512 << 10, description="Bytes per part of a payload too large for one message."
    )
    shared_memory: bool = Field(
        False, description="Pass payloads to processes on this host through shared memory."
    )


def _replica_devices(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must contain only integer GPU ids")
    if isinstance(value, int):
        return (value,)
    if not isinstance(value, str):
        return value
    words = [word.strip() for word in value.strip("[] ").split(",")]
    if not all(word.lstrip("-").isdigit() for word in words):
        raise ValueError("must contain only integer GPU ids")
    return tuple(int(word) for word in words)


class ProcessConfig(Settings):
    """How often a process group runs, and on which devices."""

    num_replicas: PositiveInt = Field(1, description="Copies of the process group.")
    replica_devices: (
        Annotated[
            tuple[Annotated[int, Field(ge=0, strict=True)], ...],
            BeforeValidator(_replica_devices),
            Field(min_length=1),
        ]
        | None
    ) = Field(
        None,
        description="GPU ids of the copies, tp_size for each; needed once a GPU stage has copies.",
    )


class PlacementConfig(Settings):
    """Limits that every GPU of the plan must keep."""

    max_total_gpu_memory_fraction_per_gpu: Fraction = Field(
        1.0, description="Highest sum of gpu_memory_fraction on one GPU."
    )
    require_memory_fraction_for_colocation: bool = Field(
        True, description="Stages that share a GPU across processes must declare their memory."
    )


class MpsQuota(Settings):
    """Limits of every process on a GPU that is shared through MPS."""

    active_thread_percentage: Annotated[float, Field(gt=0, le=100)] | None = Field(
        None, description="Share of the GPU's threads that one process may use, in percent."
    )
    pinned_memory: Annotated[ByteCount, Field(ge=1 << 20)] | None = Field(
        None, description="Device memory that one process may take, such as 20GiB."
    )

    @property
    def limits(self) -> bool:
        """Whether anything is limited."""
        return self.active_thread_percentage is not None or self.pinned_memory is not None


class EndpointConfig(Settings):
    """Where the processes of one host meet."""

    base_path: Text = Field("/tmp/omnipipe", description="Directory for sockets and run state.")


class StreamDeliveryConfig(Settings):
    """Bounds on output that clients have not read yet."""

    max_total_backlog_bytes: PositiveInt | None = Field(
        1 << 30, description="Bytes buffered for all clients together; null removes the bound."
    )
