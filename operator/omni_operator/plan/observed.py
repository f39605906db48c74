"""What is seen in the cluster, as far as rollouts depend on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PodState:
    """One pod of a stage.

    Attributes:
        created, changed: Unix seconds of its creation and of its last change of condition.
        gate: value of the readiness gate, null while the pod has no such condition.
        routable: whether every gateway can route to it; null while they cannot be asked.
        in_flight: requests of all gateways that need it; null while they cannot be asked.
        drain_started: Unix seconds; null when it is not draining.
        released: whether it is marked as the very first to go.
        scheduled: whether it has a node.
    """

    name: str
    uid: str
    created: float
    changed: float = 0.0
    gate: bool | None = None
    containers_ready: bool = False
    routable: bool | None = None
    in_flight: int | None = None
    drain_started: float | None = None
    released: bool = False
    terminating: bool = False
    scheduled: bool = True

    @property
    def draining(self) -> bool:
        """Whether it takes no new requests because it is about to go."""
        return self.drain_started is not None

    @property
    def serves(self) -> bool:
        """Whether it takes new requests. What a gateway cannot tell, the gate remembers."""
        taken = self.gate if self.routable is None else self.routable
        return bool(taken) and not self.draining and not self.terminating


@dataclass(frozen=True, slots=True)
class Workload:
    """The Deployment of one revision of a pod shape, with its pods.

    Attributes:
        replicas: pods that its spec asks for.
        created: Unix seconds.
        gpus: whole GPUs of one pod.
        claim: ResourceClaim that all of its pods share with those of other shapes, else empty.
        pods: all that exist, terminating ones too.
    """

    name: str
    shape: str
    revision: str
    replicas: int
    created: float
    gpus: int = 0
    claim: str = ""
    pods: tuple[PodState, ...] = ()

    @property
    def living(self) -> tuple[PodState, ...]:
        """Pods that were not told to stop."""
        return tuple(pod for pod in self.pods if not pod.terminating)

    @property
    def held(self) -> int:
        """Pods that hold, or are about to hold, devices and memory."""
        return max(self.replicas, len(self.pods))


@dataclass(frozen=True, slots=True)
class KnownRevision:
    """A revision of the whole pipeline that requests may be pinned to.

    Attributes:
        shapes: revision of every pod shape.
        created: Unix seconds at which it was wanted last.
        served: whether a complete path of it was ever routable.
        groups: pod shape of every process group, as gateways name groups.
    """

    name: str
    shapes: Mapping[str, str]
    created: float
    served: bool = False
    groups: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ObservedFleet:
    """Everything a rollout looks at.

    Attributes:
        revisions: known revisions of the pipeline, oldest first.
    """

    workloads: tuple[Workload, ...] = ()
    revisions: tuple[KnownRevision, ...] = ()

    def of_shape(self, shape: str) -> tuple[Workload, ...]:
        """Return the workloads of a pod shape, oldest first."""
        found = [one for one in self.workloads if one.shape == shape]
        return tuple(sorted(found, key=lambda one: (one.created, one.name)))

    def pods(self) -> Iterator[tuple[Workload, PodState]]:
        """Yield every pod with its workload."""
        for workload in self.workloads:
            for pod in workload.pods:
                yield workload, pod
