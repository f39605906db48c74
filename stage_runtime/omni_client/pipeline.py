"""What runs behind a gateway, as an application reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omni_wire.v1 import gateway_pb2 as pb


@dataclass(frozen=True, slots=True)
class Instance:
    """One copy of a stage; `reason` says why it is not ready."""

    name: str
    address: str
    ready: bool
    reason: str
    queued: int
    in_flight: int
    revision: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage and its copies."""

    name: str
    group: str
    next: tuple[str, ...]
    terminal: bool
    instances: tuple[Instance, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The pipeline; `config_yaml` and `provenance` are empty unless they were asked for."""

    name: str
    model: str
    ready: bool
    stages: tuple[Stage, ...]
    config_hash: str
    config_yaml: str = ""
    provenance: Mapping[str, str] = field(default_factory=dict)


def pipeline_of(proto: pb.GetPipelineResponse) -> Pipeline:
    """Return the pipeline that a message describes."""
    return Pipeline(
        name=proto.name,
        model=proto.model,
        ready=proto.ready,
        stages=tuple(_stage(stage) for stage in proto.stages),
        config_hash=proto.config_hash,
        config_yaml=proto.config_yaml,
        provenance=dict(proto.provenance),
    )


def _stage(proto: pb.Stage) -> Stage:
    instances = tuple(
        Instance(
            name=one.name,
            address=one.address,
            ready=one.ready,
            reason=one.reason,
            queued=one.queued,
            in_flight=one.in_flight,
            revision=one.revision,
        )
        for one in proto.instances
    )
    return Stage(proto.name, proto.group, tuple(proto.next), proto.terminal, instances)
