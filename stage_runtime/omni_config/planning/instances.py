"""From declared stages to the instances that will run, and from a request to the instances it uses.

A process group is copied as a whole: its stages become `stage@rN`, the group `process@rN`. Wiring
keeps the logical names, so which copy a message goes to is decided once per request, when it is
admitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from omni_config.errors import OmniError, Problem
from omni_config.schema import EngineStageConfig, PipelineConfig, StageConfig


@dataclass(frozen=True, slots=True)
class StageInstance:
    """One copy of a stage, on its devices.

    Attributes:
        name: `stage@rN` when the process is replicated, else the stage's own name.
        process: `process@rN` likewise.
        config: the stage as configured; `replica_devices` may have moved it away from its `gpu`.
        gpu_ids: device per tensor-parallel rank, empty on the CPU.
        replica_index: N, 0 when the process is not replicated.
    """

    name: str
    process: str
    config: StageConfig
    gpu_ids: tuple[int, ...]
    replica_index: int
    replica_count: int

    @property
    def stage(self) -> str:
        """Logical name of the stage."""
        return self.config.name

    @property
    def logical_process(self) -> str:
        """Logical name of the process group."""
        return self.config.process_name

    @property
    def replicated(self) -> bool:
        """Whether other copies of this stage run beside it."""
        return self.replica_count > 1

    @property
    def moved(self) -> bool:
        """Whether `replica_devices` put the stage somewhere else than its own `gpu`."""
        return self.gpu_ids != self.config.gpu_ids

    @property
    def kv_cache_bytes(self) -> int | None:
        """Bytes of KV cache per rank when they were written."""
        stage = self.config
        return stage.engine.kv_cache_bytes if isinstance(stage, EngineStageConfig) else None

    @property
    def device_path(self) -> str:
        """Path of the setting that chose the devices."""
        if self.moved or self.replicated:
            return f"processes.{self.logical_process}.replica_devices"
        return f"stages.{self.stage}.gpu"


@dataclass(frozen=True, slots=True)
class ReplicaTopology:
    """Every instance of a pipeline.

    Attributes:
        instances: stage order of the configuration, copies of one stage consecutive.
        replicas: instance names of each replicated stage; a stage that runs once is absent.
        processes: process instance names of each replicated process; one that runs once is absent.
    """

    instances: tuple[StageInstance, ...]
    replicas: Mapping[str, tuple[str, ...]]
    processes: Mapping[str, tuple[str, ...]]

    def instances_of(self, stage: str) -> tuple[str, ...]:
        """Return the names under which a logical stage runs."""
        return self.replicas.get(stage, (stage,))

    def process_instances_of(self, process: str) -> tuple[str, ...]:
        """Return the names under which a logical process runs."""
        return self.processes.get(process, (process,))


def expand_replicas(config: PipelineConfig) -> ReplicaTopology:
    """Return the instances that a configuration asks for.

    Counts of devices were checked when the configuration was built.
    """
    instances = tuple(chain.from_iterable(_copies(config, stage) for stage in config.stages))
    replicas: dict[str, tuple[str, ...]] = {}
    processes: dict[str, tuple[str, ...]] = {}
    for stage in config.stages:
        count = _replica_count(config, stage)
        if count > 1:
            replicas[stage.name] = _copy_names(stage.name, count)
            processes[stage.process_name] = _copy_names(stage.process_name, count)
    return ReplicaTopology(instances, replicas, processes)


def replica_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Refuse copies of a stage that manages devices of its own."""
    for stage in config.stages:
        policy = config.processes.get(stage.process_name)
        if stage.runtime_gpu_ids is None or policy is None:
            continue
        if policy.num_replicas > 1 or policy.replica_devices is not None:
            yield Problem(
                f"processes.{stage.process_name}",
                f"Process '{stage.process_name}' holds stage '{stage.name}', whose "
                f"runtime_gpu_ids={list(stage.runtime_gpu_ids)} name its devices; it can neither "
                "be replicated nor moved by replica_devices",
            )


def device_override_warnings(config: PipelineConfig) -> Iterator[str]:
    """Say where `replica_devices` really moves a stage away from the `gpu` it shows."""
    for stage in config.stages:
        policy = config.processes.get(stage.process_name)
        if policy is None or policy.replica_devices is None or stage.gpu is None:
            continue
        blocks = _device_blocks(policy.replica_devices, stage.tp_size)
        if all(block == stage.gpu_ids for block in blocks):
            continue
        parallel = stage.tp_size > 1
        shown = [list(block) if parallel else block[0] for block in blocks]
        own = list(stage.gpu_ids) if isinstance(stage.gpu, tuple) else stage.gpu
        yield (
            f"Stage '{stage.name}': processes.{stage.process_name}.replica_devices overrides "
            f"gpu={own}; replica GPU assignments: {shown}"
        )


def _copies(config: PipelineConfig, stage: StageConfig) -> Iterator[StageInstance]:
    count = _replica_count(config, stage)
    names = _copy_names(stage.name, count)
    processes = _copy_names(stage.process_name, count)
    devices = _devices_per_copy(config, stage, count)
    for index in range(count):
        yield StageInstance(names[index], processes[index], stage, devices[index], index, count)


def _replica_count(config: PipelineConfig, stage: StageConfig) -> int:
    policy = config.processes.get(stage.process_name)
    return 1 if policy is None else policy.num_replicas


def _copy_names(name: str, count: int) -> tuple[str, ...]:
    return (name,) if count == 1 else tuple(f"{name}@r{index}" for index in range(count))


def _devices_per_copy(
    config: PipelineConfig, stage: StageConfig, count: int
) -> list[tuple[int, ...]]:
    policy = config.processes.get(stage.process_name)
    devices = None if policy is None else policy.replica_devices
    if stage.gpu is None or devices is None:
        return [stage.gpu_ids] * count
    return _device_blocks(devices, stage.tp_size)


def _device_blocks(devices: tuple[int, ...], size: int) -> list[tuple[int, ...]]:
    return [devices[start : start + size] for start in range(0, len(devices), size)]


class NoReplicaError(OmniError):
    """Every copy of a process is out of service; retrying after one returned can help."""

    def __init__(self, process: str, copies: Collection[str]) -> None:
        self.process = process
        super().__init__(f"Process '{process}' has no copy in service: {', '.join(copies)}")


@dataclass(frozen=True, slots=True)
class Binding:
    """Which copy of each replicated stage serves one request; travels with its messages."""

    replica_by_stage: Mapping[str, int]

    def instance_of(self, stage: str) -> str:
        """Return the instance that serves the request."""
        index = self.replica_by_stage.get(stage)
        return stage if index is None else f"{stage}@r{index}"


@dataclass(slots=True)
class ReplicaBinder:
    """Chooses a copy of every replicated process for one request after the other.

    The least loaded copy in service wins; copies with equal load take turns, each process on its
    own, so without load figures this is round robin.
    """

    topology: ReplicaTopology
    _turn: dict[str, int] = field(default_factory=dict)

    def bind(
        self, load: Mapping[str, int] | None = None, out_of_service: Collection[str] = ()
    ) -> Binding | None:
        """Return the binding of the next request, or null when nothing is replicated.

        Args:
            load: requests in flight per process instance; an absent one has none.
            out_of_service: process instances that must not be chosen.

        Raises:
            NoReplicaError: all copies of a process are out of service.
        """
        if not self.topology.processes:
            return None
        chosen = {
            process: self._choose(process, copies, load or {}, out_of_service)
            for process, copies in self.topology.processes.items()
        }
        self._turn.update({process: index + 1 for process, index in chosen.items()})
        return Binding(
            {
                instance.stage: chosen[instance.logical_process]
                for instance in self.topology.instances
                if instance.replicated
            }
        )

    def _choose(
        self,
        process: str,
        copies: tuple[str, ...],
        load: Mapping[str, int],
        out_of_service: Collection[str],
    ) -> int:
        first = self._turn.get(process, 0)
        turns = [(first + step) % len(copies) for step in range(len(copies))]
        in_service = [index for index in turns if copies[index] not in out_of_service]
        if not in_service:
            raise NoReplicaError(process, copies)
        return min(in_service, key=lambda index: load.get(copies[index], 0))
