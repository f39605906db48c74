"""When each stage worked on the latest requests, for `omni trace` and the page.

Stages collect the times in the request itself (`omni_runtime.timeline`); results of terminal stages
bring them here. What is kept is bounded: the oldest request goes when a new one comes.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from omni_gateway.coordinator.records import Phase
from omni_runtime.timeline import TIMELINE
from omni_wire.messages import Tree

KEPT_REQUESTS = 256
"""Requests that are remembered, unfinished ones included."""


@dataclass(frozen=True, slots=True)
class StageSpan:
    """One stage's work on a request, in seconds since its admission by this gateway's clock.

    Attributes:
        instance: which replica it was.
        opened: the first message about the request came.
        first_output: the first row left; None where the stage streams nothing.
        finished: the result was there.
    """

    stage: str
    instance: str
    opened: float
    first_output: float | None
    finished: float

    def tree(self) -> dict[str, Tree]:
        """The span as plain data."""
        return {
            "stage": self.stage,
            "instance": self.instance,
            "opened": self.opened,
            "first_output": self.first_output,
            "finished": self.finished,
        }


@dataclass(frozen=True, slots=True)
class RequestTimeline:
    """What became of one request.

    Attributes:
        admitted: in Unix seconds.
        reason: stable reason of a failure; empty otherwise.
        seconds: from admission to the end; None while it runs.
        stages: by when they were opened; empty until the request has completed.
    """

    request_id: str
    admitted: float
    phase: Phase = Phase.RUNNING
    reason: str = ""
    seconds: float | None = None
    stages: tuple[StageSpan, ...] = ()

    def tree(self) -> dict[str, Tree]:
        """The timeline as plain data, in the shape the HTTP API gives."""
        return {
            "request_id": self.request_id,
            "status": self.phase.value,
            "reason": self.reason,
            "admitted": self.admitted,
            "seconds": self.seconds,
            "stages": [span.tree() for span in self.stages],
        }


class TimelineStore:
    """The timelines of the latest requests, by request id.

    Args:
        limit: most requests to remember.
        now: Unix seconds.
    """

    def __init__(self, limit: int = KEPT_REQUESTS, now: Callable[[], float] = time.time) -> None:
        self._limit = limit
        self._now = now
        self._kept: OrderedDict[str, RequestTimeline] = OrderedDict()

    def begin(self, request_id: str) -> None:
        """Remember an admitted request; the oldest one may be forgotten for it."""
        self._kept.pop(request_id, None)
        self._kept[request_id] = RequestTimeline(request_id, self._now())
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def end(
        self,
        request_id: str,
        phase: Phase,
        seconds: float,
        *,
        reason: str = "",
        results: Mapping[str, Tree] | None = None,
    ) -> None:
        """Note the end of a request; nothing happens when it is forgotten already.

        Args:
            seconds: since its admission.
            results: results of its terminal stages, by stage.
        """
        kept = self._kept.get(request_id)
        if kept is None:
            return
        stages = spans_of(results or {}, kept.admitted)
        self._kept[request_id] = replace(
            kept, phase=phase, reason=reason, seconds=seconds, stages=stages
        )

    def get(self, request_id: str) -> RequestTimeline | None:
        """Return what is known of a request; None when it is unknown or forgotten."""
        return self._kept.get(request_id)

    def latest(self) -> Iterator[RequestTimeline]:
        """Yield what is remembered, the latest request first."""
        return reversed(self._kept.values())


def spans_of(results: Mapping[str, Tree], admitted: float) -> tuple[StageSpan, ...]:
    """Return what the results of terminal stages tell about every stage, by when it was opened.

    Args:
        admitted: when the request was, in Unix seconds.
    """
    spans = {span.stage: span for span in _spans(results, admitted)}
    return tuple(sorted(spans.values(), key=lambda span: (span.opened, span.finished)))


def _spans(results: Mapping[str, Tree], admitted: float) -> Iterator[StageSpan]:
    for result in results.values():
        entries = result.get(TIMELINE) if isinstance(result, Mapping) else None
        if not isinstance(entries, Mapping):
            continue
        for stage, entry in entries.items():
            if isinstance(entry, Mapping):
                yield StageSpan(
                    str(stage),
                    str(entry.get("instance", stage)),
                    _since(entry, "opened", admitted) or 0.0,
                    _since(entry, "first_output", admitted),
                    _since(entry, "finished", admitted) or 0.0,
                )


def _since(entry: Mapping[str, Tree], name: str, admitted: float) -> float | None:
    value = entry.get(name)
    return value - admitted if isinstance(value, int | float) else None
