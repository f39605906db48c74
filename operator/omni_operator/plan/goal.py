"""What a rollout is to reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from omni_operator.plan.observed import ObservedFleet
from omni_operator.plan.policy import StepLimits

UNSCHEDULABLE_SECONDS = 10.0
"""A pod without a node for this long found no room; the scheduler needs a moment for any."""


@dataclass(frozen=True, slots=True)
class ShapeGoal:
    """The wanted state of one pod shape.

    Attributes:
        gpus: whole GPUs of one pod.
        claim: ResourceClaim its pods share with other shapes, else empty.
        drain_seconds: longest drain of a pod.
    """

    shape: str
    revision: str
    replicas: int
    limits: StepLimits
    gpus: int = 0
    claim: str = ""
    drain_seconds: float = 120.0

    @property
    def least_available(self) -> int:
        """Fewest routable pods that the rollout allows."""
        return max(0, self.replicas - self.limits.max_unavailable)

    @property
    def most_pods(self) -> int:
        """Most pods of all revisions that the rollout allows."""
        return self.replicas + self.limits.max_surge


@dataclass(frozen=True)
class Goal:
    """The wanted state of a pipeline.

    Attributes:
        revision: name of the pipeline's revision.
        surge_free: never hold more GPUs than the wanted state needs.
        history_limit: revisions without pods kept per pod shape.
        left_alone: shapes that no pod is started or stopped of.
        progress_deadline: seconds without progress after which the rollout counts as stalled.
        groups: pod shape of every process group, as gateways name groups.
    """

    revision: str
    shapes: tuple[ShapeGoal, ...]
    surge_free: bool = False
    paused: bool = False
    history_limit: int = 3
    progress_deadline: float = 1800.0
    left_alone: frozenset[str] = frozenset()
    groups: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_shape(self) -> dict[str, ShapeGoal]:
        """The goals by shape."""
        return {one.shape: one for one in self.shapes}


def frozen(goal: Goal, observed: ObservedFleet) -> Goal:
    """Return the goal of a paused rollout: the revisions that run, and nothing else.

    A shape of which one revision has pods may still be scaled; a shape in the middle of a change,
    or without pods, is left alone.
    """
    shapes: list[ShapeGoal] = []
    left_alone = {one.shape for one in observed.workloads} - goal.by_shape.keys()
    for one in goal.shapes:
        running = [it for it in observed.of_shape(one.shape) if it.replicas or it.living]
        if len(running) == 1:
            shapes.append(replace(one, revision=running[0].revision))
        else:
            shapes.append(one)
            left_alone.add(one.shape)
    return replace(goal, shapes=tuple(shapes), left_alone=frozenset(left_alone))
