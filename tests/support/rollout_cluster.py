"""A cluster in memory for rollouts: controllers, scheduler, kubelet and gateways, one tick at a
time. It judges every step as it is taken: what a rollout promises must hold at all times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from omni_operator.names import short_hash
from omni_operator.plan.actions import (
    CancelDrain,
    DeleteRevision,
    Drain,
    Release,
    RolloutAction,
    Scale,
    SetReadinessGate,
    SetRoutes,
    Wait,
)
from omni_operator.plan.goal import Goal, ShapeGoal
from omni_operator.plan.observed import KnownRevision, ObservedFleet, PodState, Workload
from omni_operator.plan.policy import StepLimits
from omni_operator.plan.rollout import decide
from tests.support.rollout_judge import judge

TICK_SECONDS = 5.0
DRAIN_SECONDS = 60.0


@dataclass
class Shape:
    """What the user wants of one pod shape."""

    name: str
    revision: str
    replicas: int
    limits: StepLimits
    gpus: int = 0
    claim: str = ""


@dataclass
class Pod:
    name: str
    gpus: int
    claim: str
    created: float
    changed: float
    scheduled: bool = False
    ready: bool = False
    crashed: bool = False
    gate: bool | None = None
    in_flight: int = 0
    drain_started: float | None = None
    released: bool = False
    terminating: bool = False


@dataclass
class Deployment:
    shape: str
    revision: str
    replicas: int
    created: float
    gpus: int
    claim: str
    pods: list[Pod] = field(default_factory=list)

    @property
    def living(self) -> list[Pod]:
        return [pod for pod in self.pods if not pod.terminating]


class RolloutCluster:
    """The cluster and the object in it.

    Attributes:
        first: the shapes as they were first wanted.
        capacity: GPUs of all nodes.
        broken: shape revisions whose pods never become ready.
    """

    def __init__(self, shapes: Sequence[Shape], *, capacity: int, surge_free: bool) -> None:
        self.shapes = {shape.name: shape for shape in shapes}
        self.first = {shape.name: replace(shape) for shape in shapes}
        self.capacity = capacity
        self.surge_free = surge_free
        self.paused = False
        self.gateways_answer = True
        self.broken: set[tuple[str, str]] = set()
        self.deployments: dict[tuple[str, str], Deployment] = {}
        self.revisions: tuple[KnownRevision, ...] = ()
        self.now = 1_000.0
        self._names = count()

    def __repr__(self) -> str:
        return f"RolloutCluster({list(self.shapes.values())}, {self.capacity=}, {self.surge_free=})"

    @property
    def goal(self) -> Goal:
        shapes = tuple(
            ShapeGoal(
                one.name, one.revision, one.replicas, one.limits, one.gpus, one.claim, DRAIN_SECONDS
            )
            for one in self.shapes.values()
        )
        name = short_hash(str([(one.shape, one.revision) for one in shapes]))
        return Goal(name, shapes, surge_free=self.surge_free, paused=self.paused, history_limit=2)

    @property
    def observed(self) -> ObservedFleet:
        return ObservedFleet(
            tuple(self._workload(one) for one in self.deployments.values()), self.revisions
        )

    def tick(self, writes: int | None = None) -> tuple[RolloutAction, ...]:
        """Let the operator act once, then everything else.

        Args:
            writes: how many of its writes the operator makes before it is killed; all when None.
        """
        actions = self.reconcile(writes)
        self.live()
        return actions

    def reconcile(self, writes: int | None = None) -> tuple[RolloutAction, ...]:
        """Let the operator act once, and judge what it does."""
        goal, before = self.goal, self.observed
        actions = decide(goal, before, self.now)
        taken = [one for one in actions if not isinstance(one, Wait)]
        for action in taken[:writes]:
            self._take(action)
        judge(goal, before, self.observed, taken)
        return actions

    def live(self) -> None:
        """Let time pass for controllers, scheduler, kubelet and gateways."""
        self.now += TICK_SECONDS
        for one in self.deployments.values():
            one.pods = [pod for pod in one.pods if not pod.terminating]
        for one in self.deployments.values():
            self._control(one)
        self._schedule()
        for one in self.deployments.values():
            for pod in one.living:
                self._run(one, pod)

    def settled(self) -> bool:
        """Whether there is exactly what is wanted, all of it serving."""
        for one in self.deployments.values():
            shape = self.shapes.get(one.shape)
            wanted = shape.replicas if shape and shape.revision == one.revision else 0
            serving = sum(state.serves for state in map(self._state, one.pods))
            if not one.replicas == len(one.pods) == serving == wanted:
                return False
        present = {key for key, one in self.deployments.items() if one.replicas}
        wanted_keys = {(s.name, s.revision) for s in self.shapes.values() if s.replicas}
        return present == wanted_keys

    def pods(self) -> list[Pod]:
        return [pod for one in self.deployments.values() for pod in one.living]

    def _workload(self, one: Deployment) -> Workload:
        pods = tuple(map(self._state, one.pods))
        name = f"{one.shape}-{one.revision}"
        return Workload(
            name, one.shape, one.revision, one.replicas, one.created, one.gpus, one.claim, pods
        )

    def _state(self, pod: Pod) -> PodState:
        routable = pod.ready and pod.drain_started is None
        return PodState(
            name=pod.name,
            uid=pod.name,
            created=pod.created,
            changed=pod.changed,
            gate=pod.gate,
            containers_ready=pod.ready,
            routable=routable if self.gateways_answer else None,
            in_flight=pod.in_flight if self.gateways_answer else None,
            drain_started=pod.drain_started,
            released=pod.released,
            terminating=pod.terminating,
            scheduled=pod.scheduled,
        )

    def _take(self, action: RolloutAction) -> None:
        pods = {pod.name: pod for pod in self.pods()}
        match action:
            case Scale(shape, revision, replicas):
                self._scale(shape, revision, replicas)
            case DeleteRevision(_, shape, revision):
                gone = self.deployments.pop((shape, revision))
                assert not gone.pods, "a revision with pods must not be deleted"
            case Drain(pod):
                pods[pod].drain_started = self.now
            case Release(pod):
                pods[pod].released = True
            case CancelDrain(pod):
                pods[pod].drain_started, pods[pod].released = None, False
            case SetReadinessGate(pod, _, routable):
                pods[pod].gate, pods[pod].changed = routable, self.now
            case SetRoutes(revisions):
                self.revisions = revisions

    def _scale(self, shape: str, revision: str, replicas: int) -> None:
        known = self.deployments.get((shape, revision))
        if known is not None:
            known.replicas = replicas
            return
        wanted = self.shapes[shape]
        assert wanted.revision == revision, "only the wanted revision may be created"
        self.deployments[shape, revision] = Deployment(
            shape, revision, replicas, self.now, wanted.gpus, wanted.claim
        )

    def _control(self, one: Deployment) -> None:
        """Play the ReplicaSet: it removes pods in the order Kubernetes does."""
        for _ in range(one.replicas - len(one.living)):
            name = f"{one.shape}-{one.revision}-{next(self._names)}"
            one.pods.append(Pod(name, one.gpus, one.claim, self.now, self.now))
        excess = len(one.living) - one.replicas
        if excess <= 0:
            return
        order = sorted(
            one.living,
            key=lambda pod: (pod.scheduled, bool(pod.gate), _deletion_cost(pod), -pod.created),
        )
        for pod in order[:excess]:
            over = pod.drain_started is not None and (
                pod.in_flight == 0 or self.now - pod.drain_started >= DRAIN_SECONDS
            )
            assert over or pod.in_flight == 0, f"{pod.name} went with requests in flight"
            assert over or not self._state(pod).serves, f"{pod.name} went while it served"
            pod.terminating = True

    def _schedule(self) -> None:
        running = [pod for one in self.deployments.values() for pod in one.pods if pod.scheduled]
        claims = {pod.claim: pod.gpus for pod in running if pod.claim}
        free = self.capacity - sum(pod.gpus for pod in running if not pod.claim)
        free -= sum(claims.values())
        for pod in sorted(self.pods(), key=lambda pod: (pod.created, pod.name)):
            need = 0 if pod.claim in claims else pod.gpus
            if pod.scheduled or need > free:
                continue
            pod.scheduled = True
            free -= need
            if pod.claim:
                claims[pod.claim] = pod.gpus

    def _run(self, one: Deployment, pod: Pod) -> None:
        ready = pod.scheduled and not pod.crashed and (one.shape, one.revision) not in self.broken
        if ready != pod.ready:
            pod.ready, pod.changed = ready, self.now
        if not ready:
            pod.in_flight = 0
        elif pod.drain_started is not None:
            pod.in_flight = max(0, pod.in_flight - 1)
        else:
            pod.in_flight = 2


def _deletion_cost(pod: Pod) -> int:
    return 0 if pod.drain_started is None else -2000 if pod.released else -1000
