"""All pods of a pipeline against their goal: the questions that starts and removals share."""

from __future__ import annotations

from functools import cached_property

from omni_operator.plan.goal import Goal, ShapeGoal
from omni_operator.plan.observed import KnownRevision, ObservedFleet, Workload
from omni_operator.plan.paths import Paths, ShapeRevision


class Fleet:
    """What is observed, seen from the goal. Read-only.

    Attributes:
        revisions: known revisions of the pipeline, the wanted one last.
        now: Unix seconds.
    """

    def __init__(
        self,
        goal: Goal,
        observed: ObservedFleet,
        revisions: tuple[KnownRevision, ...],
        now: float,
    ) -> None:
        self.goal = goal
        self.observed = observed
        self.revisions = revisions
        self.now = now

    @cached_property
    def shapes(self) -> tuple[str, ...]:
        """Every shape, wanted ones first."""
        names = [one.shape for one in self.goal.shapes]
        return tuple(dict.fromkeys([*names, *(one.shape for one in self.observed.workloads)]))

    @cached_property
    def paths(self) -> Paths:
        """The paths as they are."""
        return Paths.of(self.observed, self.revisions)

    @cached_property
    def goal_is_complete(self) -> bool:
        """Whether the wanted revision serves, but for shapes of which no pod is wanted."""
        return all(
            self.paths.serving[one.shape, one.revision] > 0
            for one in self.goal.shapes
            if one.replicas
        )

    @cached_property
    def path_is_wanted(self) -> bool:
        """Whether the pipeline is to serve at all: a shape scaled to nothing says no."""
        return all(one.replicas for one in self.goal.shapes)

    def wanted(self, shape: str) -> ShapeGoal | None:
        """Return the goal of a shape, null when the pipeline has it no more."""
        return self.goal.by_shape.get(shape)

    def is_left_alone(self, shape: str) -> bool:
        """Whether a pause forbids to touch the shape's pods."""
        return shape in self.goal.left_alone

    def target(self, shape: str) -> Workload | None:
        """Return the workload of the wanted revision, null while it does not exist."""
        goal = self.wanted(shape)
        if goal is None:
            return None
        every = self.observed.of_shape(shape)
        return next((one for one in every if one.revision == goal.revision), None)

    def old_workloads(self, shape: str) -> tuple[Workload, ...]:
        """Return the workloads of all other revisions, oldest first."""
        target = self.target(shape)
        return tuple(one for one in self.observed.of_shape(shape) if one is not target)

    def least_available(self, shape: str) -> int:
        """Return the fewest serving pods that the rollout allows."""
        goal = self.wanted(shape)
        if goal is not None:
            return goal.least_available
        if self.goal.surge_free:
            return 0
        return min((one.least_available for one in self.replacements(shape)), default=0)

    @cached_property
    def leaving(self) -> tuple[str, ...]:
        """Shapes that the pipeline has no more: renamed, split, merged or dropped."""
        return tuple(shape for shape in self.shapes if shape not in self.goal.by_shape)

    def replacements(self, shape: str) -> tuple[ShapeGoal, ...]:
        """Return what takes the place of a leaving shape: all that its revision did not have."""
        if self.wanted(shape) is not None:
            return ()
        held = next((one.shapes for one in self.revisions[-2::-1] if shape in one.shapes), None)
        if held is None:
            return ()
        return tuple(one for one in self.goal.shapes if held.get(one.shape) != one.revision)

    @cached_property
    def all_replacements(self) -> tuple[ShapeGoal, ...]:
        """What takes the place of any leaving shape."""
        found = [one for shape in self.leaving for one in self.replacements(shape)]
        return tuple({one.shape: one for one in found}.values())

    def carried(self, paths: Paths) -> int:
        """Return how many pods wide paths are where leaving shapes give way to new ones."""
        complete = [one for one in paths.revisions if paths.complete(one)]
        leaving = set(self.leaving)
        parts = {frozenset(it for it in one.shapes.items() if it[0] in leaving) for one in complete}
        width = sum(min(paths.serving[it] for it in part) for part in parts if part)
        if self.revisions[-1] in complete:
            new = (paths.serving[one.shape, one.revision] for one in self.all_replacements)
            width += min(new, default=0)
        return width

    @cached_property
    def protected(self) -> frozenset[ShapeRevision]:
        """Shape revisions that serve, or may come back to serve, while the wanted one cannot.

        A path that broke for a moment is worth more than one that never was.
        """
        if self.goal_is_complete:
            return frozenset()
        older = self.revisions[-2::-1]
        standing = {
            (one.shape, one.revision) for one in self.observed.workloads if one.replicas > 0
        }
        may_return = (
            one for one in older if one.served and standing.issuperset(one.shapes.items())
        )
        complete = (one for one in older if self.paths.complete(one))
        found = next(complete, None) or next(may_return, None)
        return frozenset() if found is None else frozenset(found.shapes.items())

    @cached_property
    def old_paths(self) -> tuple[KnownRevision, ...]:
        """Revisions other than the wanted one that serve."""
        return tuple(one for one in self.revisions[:-1] if self.paths.complete(one))

    @cached_property
    def gateways_answer(self) -> bool:
        """Whether every pod's traffic is known; nothing can be drained before."""
        return all(pod.routable is not None for _, pod in self.observed.pods())
