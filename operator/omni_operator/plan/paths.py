"""Which pods can really serve: those on a complete path of one revision.

A request is pinned to one revision, so a routable pod without routable company of its own revision
serves nobody. All questions of a rollout come down to how many pods per shape are of use before and
after one of them goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from omni_operator.plan.observed import KnownRevision, ObservedFleet

ShapeRevision = tuple[str, str]
"""A pod shape and its revision."""


@dataclass(slots=True)
class Paths:
    """Serving pods by shape and revision, with the revisions that make paths of them."""

    revisions: tuple[KnownRevision, ...]
    serving: Counter[ShapeRevision] = field(default_factory=Counter)

    @classmethod
    def of(cls, observed: ObservedFleet, revisions: Iterable[KnownRevision]) -> Paths:
        """Return the paths of what is observed."""
        serving = Counter(
            (workload.shape, workload.revision) for workload, pod in observed.pods() if pod.serves
        )
        return cls(tuple(revisions), serving)

    def complete(self, revision: KnownRevision) -> bool:
        """Whether every shape of a revision has a serving pod."""
        shapes = revision.shapes.items()
        return bool(shapes) and all(self.serving[one] > 0 for one in shapes)

    def useful(self) -> set[ShapeRevision]:
        """Return the shape revisions that are part of a complete path."""
        return {
            one
            for revision in self.revisions
            if self.complete(revision)
            for one in revision.shapes.items()
        }

    def useful_by_shape(self) -> Mapping[str, int]:
        """Return how many serving pods of each shape are on a complete path."""
        counts: Counter[str] = Counter()
        for shape, revision in self.useful():
            counts[shape] += self.serving[shape, revision]
        return counts

    def serving_by_shape(self) -> Mapping[str, int]:
        """Return how many pods of each shape serve, on a complete path or not."""
        counts: Counter[str] = Counter()
        for (shape, _), count in self.serving.items():
            counts[shape] += count
        return counts

    def without(self, one: ShapeRevision) -> Paths:
        """Return the paths after one serving pod has gone."""
        return Paths(self.revisions, self.serving - Counter({one: 1}))
