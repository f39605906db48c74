"""Which revisions of a pipeline its replicas make together.

A revision of the pipeline names, for each group, the revision of the pods that belong to it. Groups
that an edit left alone keep their pods, and those then belong to the old revision and the new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Routes:
    """The revisions that requests may be bound to.

    Attributes:
        revisions: pod revision of every group, or of each copy of one that has its own pods
            (`talker_ar@r1`), by revision of the pipeline. Empty where nobody manages revisions:
            then a pod's own revision is the pipeline's.
    """

    revisions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def serves(self, group: str, pod_revision: str) -> frozenset[str]:
        """Return the revisions of the pipeline that a pod of a group or copy belongs to."""
        if not self.revisions:
            return frozenset((pod_revision,))
        return frozenset(
            name for name, groups in self.revisions.items() if groups.get(group) == pod_revision
        )

    def knows(self, group: str, pod_revision: str) -> bool:
        """Whether a managed revision has such pods."""
        return bool(self.revisions) and bool(self.serves(group, pod_revision))
