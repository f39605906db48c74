"""When each stage worked on the latest requests, for `omni trace` and the page.

Stages collect the times in the request itself (`omni_runtime.timeline`); results of terminal stages
bring them here. What is kept is bounded: the oldest request goes when a new one comes.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from omni_runtime.timeline import TIMELINE
from omni_wire.errors import ServiceError
from omni_wire.messages import Tree

KEPT_REQUESTS = 256
"""Requests that are remembered, unfinished ones included."""


class Status(StrEnum):
    """How far a request is."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


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
        seconds: from admission to the end; None while it runs.
        error: reason and message of a failure; empty otherwise.
        stages: by when they were opened; empty until the request has finished.
    """

    request_id: str
    model: str
    admitted: float
    status: Status = Status.RUNNING
    seconds: float | None = None
    error: str = ""
    stages: tuple[StageSpan, ...] = ()

    def tree(self) -> dict[str, Tree]:
        """The timeline as plain data, in the shape the HTTP API gives."""
        return {
            "request_id": self.request_id,
            "model": self.model,
            "status": self.status.value,
            "admitted": self.admitted,
            "seconds": self.seconds,
            "error": self.error,
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

    def begin(self, request_id: str, model: str) -> None:
        """Remember an admitted request; the oldest one may be forgotten for it."""
        self._kept.pop(request_id, None)
        self._kept[request_id] = RequestTimeline(request_id, model, self._now())
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def finish(self, request_id: str, results: Mapping[str, Tree]) -> None:
        """Note the end of a request.

        Args:
            results: results of its terminal stages, by stage.
        """
        kept = self._kept.get(request_id)
        if kept is None:
            return
        spans = {span.stage: span for span in _spans(results, kept.admitted)}
        stages = tuple(sorted(spans.values(), key=lambda span: (span.opened, span.finished)))
        self._end(kept, Status.FINISHED, stages=stages)

    def fail(self, request_id: str, error: ServiceError) -> None:
        """Note that a request failed."""
        kept = self._kept.get(request_id)
        if kept is not None:
            self._end(kept, Status.FAILED, error=f"{error.info.reason}: {error.info.message}")

    def leave(self, request_id: str) -> None:
        """Note that the client left; does nothing to a request that has ended."""
        kept = self._kept.get(request_id)
        if kept is not None and kept.status is Status.RUNNING:
            self._end(kept, Status.CANCELLED)

    def get(self, request_id: str) -> RequestTimeline | None:
        """Return what is known of a request; None when it is unknown or forgotten."""
        return self._kept.get(request_id)

    def latest(self) -> Iterator[RequestTimeline]:
        """Yield what is remembered, the latest request first."""
        return reversed(self._kept.values())

    def _end(
        self,
        kept: RequestTimeline,
        status: Status,
        *,
        error: str = "",
        stages: tuple[StageSpan, ...] = (),
    ) -> None:
        seconds = self._now() - kept.admitted
        ended = replace(kept, status=status, seconds=seconds, error=error, stages=stages)
        self._kept[kept.request_id] = ended


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
