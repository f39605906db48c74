"""When each stage worked on a request, collected in the request itself.

A client that wants to know has the gateway put an empty timeline into the request's metadata. Each
stage adds its entry when it is done, and the entries travel on with the payload, so that what a
terminal stage returns says when everything before it happened. Requests without a timeline pay one
look into a mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from omni_wire.messages import RequestView, Tree

TIMELINE = "timeline"
"""Name in a request's metadata, and in the result of a terminal stage."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One stage's work on one request, in Unix seconds.

    Attributes:
        instance: which replica it was.
        opened: the first message about the request came.
        first_output: the first row left; None where the stage streams nothing.
        finished: the result was there.
    """

    instance: str
    opened: float
    first_output: float | None
    finished: float

    def tree(self) -> Tree:
        """The entry as it travels."""
        return {
            "instance": self.instance,
            "opened": self.opened,
            "first_output": self.first_output,
            "finished": self.finished,
        }


def entries_of(view: RequestView | None) -> Mapping[str, Tree] | None:
    """Return the entries collected so far by stage, or None where nobody wants them."""
    found = None if view is None else view.metadata.get(TIMELINE)
    return found if isinstance(found, Mapping) else None


def with_entries(view: RequestView, entries: Mapping[str, Tree]) -> RequestView:
    """Return the request with these entries."""
    return replace(view, metadata={**view.metadata, TIMELINE: entries})
