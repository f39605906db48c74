"""The Coordinator: admits requests, binds them to replicas, gathers output, ends each exactly once.

`state` decides and does nothing else; `coordinator` gives it a clock, links and readers;
`replicas` is the side of the group processes.
"""

from omni_gateway.coordinator.coordinator import Coordinator
from omni_gateway.coordinator.directory import Registration
from omni_gateway.coordinator.handle import RequestHandle
from omni_gateway.coordinator.links import ReplicaLink
from omni_gateway.coordinator.options import CoordinatorOptions
from omni_gateway.coordinator.readiness import Readiness
from omni_gateway.coordinator.records import Phase
from omni_gateway.coordinator.replicas import ReplicaGate
from omni_gateway.coordinator.routes import Routes
from omni_gateway.coordinator.streams import Output
from omni_gateway.coordinator.timelines import StageSpan, spans_of
from omni_gateway.coordinator.topology import PipelineTopology, topology_of
from omni_gateway.coordinator.warm_ups import WarmUpDue

__all__ = [
    "Coordinator",
    "CoordinatorOptions",
    "Output",
    "Phase",
    "PipelineTopology",
    "Readiness",
    "Registration",
    "ReplicaGate",
    "ReplicaLink",
    "RequestHandle",
    "Routes",
    "StageSpan",
    "WarmUpDue",
    "spans_of",
    "topology_of",
]
