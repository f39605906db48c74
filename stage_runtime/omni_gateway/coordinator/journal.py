"""What became of requests and replicas: counted, remembered for a while, and logged."""

from __future__ import annotations

from dataclasses import dataclass

from omni_gateway.coordinator.events import Finished, Submitted
from omni_gateway.coordinator.records import RequestRecord
from omni_gateway.coordinator.timelines import TimelineStore
from omni_gateway.metrics import GatewayMetrics
from omni_runtime.logging import EventLogger

logger = EventLogger("omni_gateway.coordinator")


@dataclass(frozen=True, slots=True)
class Journal:
    """Writes down what a Coordinator does; warm-ups apart from what clients ask."""

    metrics: GatewayMetrics
    timelines: TimelineStore

    def admitted(self, event: Submitted) -> None:
        """Note a request that was taken."""
        if event.warm_up:
            return
        self.metrics.counts.submitted += 1
        self.timelines.begin(event.request_id)

    def refused(self, event: Submitted) -> None:
        """Note a request that was not."""
        if not event.warm_up:
            self.metrics.counts.refused += 1

    def finished(self, step: Finished, record: RequestRecord | None) -> None:
        """Note the end of a request.

        Args:
            record: what is left of it; null when nobody holds it any more.
        """
        if step.warm_up:
            self.metrics.warmed_up(step.warm_up, step.phase, step.reason)
        else:
            self.metrics.finished(step.phase, step.reason, step.seconds)
        self.timelines.end(
            step.key.request_id,
            step.phase,
            step.seconds,
            reason=step.reason,
            results=None if record is None else record.results,
        )
        logger.info(
            "warm-up finished" if step.warm_up else "request finished",
            step.key,
            phase=step.phase,
            reason=step.reason or "-",
            seconds=f"{step.seconds:.6f}",
        )

    def lost(self, incarnation: int, reason: str) -> None:
        """Note a replica that is gone."""
        self.metrics.counts.replicas_lost += 1
        logger.warning("replica lost", incarnation=incarnation, reason=reason)
