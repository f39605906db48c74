"""Prometheus metrics of one gateway.

The hot path only adds to plain integers; everything else is read from the Coordinator's state when
somebody scrapes. Each gateway has a registry of its own, so several can live in one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from omni_gateway.coordinator.records import Phase
from omni_gateway.coordinator.state import CoordinatorState

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""Upper bounds of the buckets of request durations."""


@dataclass(slots=True)
class Counts:
    """What happened since the gateway started.

    Attributes:
        frames: output frames received, one per scheduler step and replica.
        chunks: rows of those frames, one per request.
        chunk_bytes: bytes of those rows.
    """

    submitted: int = 0
    refused: int = 0
    frames: int = 0
    chunks: int = 0
    chunk_bytes: int = 0
    replicas_lost: int = 0


@dataclass(slots=True)
class GatewayMetrics:
    """Counters of one gateway and the registry that exposes them."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    counts: Counts = field(default_factory=Counts)
    _finished: Counter = field(init=False)
    _seconds: Histogram = field(init=False)
    _warm_ups: Counter = field(init=False)

    def __post_init__(self) -> None:
        self._finished = Counter(
            "omni_gateway_requests_finished",
            "Requests that ended, by phase and reason.",
            ["phase", "reason"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "omni_gateway_request_duration_seconds",
            "From admission to the end of a request.",
            ["phase"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._warm_ups = Counter(
            "omni_gateway_warm_ups",
            "Warm-ups that ended, by name and reason; they count as no request.",
            ["name", "phase", "reason"],
            registry=self.registry,
        )

    def watch(self, state: CoordinatorState) -> None:
        """Expose a Coordinator's state."""
        self.registry.register(_StateCollector(state, self.counts))

    def finished(self, phase: Phase, reason: str, seconds: float) -> None:
        """Count a request that ended."""
        self._finished.labels(phase.value, reason).inc()
        self._seconds.labels(phase.value).observe(seconds)

    def warmed_up(self, name: str, phase: Phase, reason: str) -> None:
        """Count a warm-up that ended."""
        self._warm_ups.labels(name, phase.value, reason).inc()


@dataclass(slots=True, eq=False)
class _StateCollector(Collector):
    state: CoordinatorState
    counts: Counts

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of this moment."""
        yield from self._totals()
        yield from self._gauges()
        yield self._replicas()
        yield from self._instances()

    def _totals(self) -> Iterator[Metric]:
        counts = self.counts
        yield _counter("requests_submitted", "Requests admitted.", counts.submitted)
        yield _counter("requests_refused", "Requests not admitted.", counts.refused)
        yield _counter("output_frames", "Output frames received.", counts.frames)
        yield _counter("output_chunks", "Output chunks received.", counts.chunks)
        yield _counter("output_bytes", "Bytes of output received.", counts.chunk_bytes)
        yield _counter("replicas_lost", "Group processes lost.", counts.replicas_lost)

    def _gauges(self) -> Iterator[Metric]:
        requests = self.state.requests
        yield _gauge("requests_in_flight", "Unfinished requests.", requests.admission.in_flight)
        yield _gauge("requests_waiting", "Requests that wait for a replica.", len(requests.waiting))
        yield _gauge("requests_held", "Request ids that somebody holds.", len(requests))
        yield _gauge(
            "output_backlog_bytes", "Output not read by clients.", requests.backlog.size_bytes
        )

    def _replicas(self) -> Metric:
        family = GaugeMetricFamily(
            "omni_gateway_stage_replicas", "Replicas that take requests.", labels=["stage"]
        )
        for stage, count in self.state.readiness().replicas.items():
            family.add_metric([stage], count)
        return family

    def _instances(self) -> Iterator[Metric]:
        labels = ["stage", "instance", "address"]
        outstanding = GaugeMetricFamily(
            "omni_gateway_instance_outstanding", "Unfinished requests bound here.", labels=labels
        )
        queued = GaugeMetricFamily(
            "omni_gateway_instance_queued", "Requests queued there, as reported.", labels=labels
        )
        age = GaugeMetricFamily(
            "omni_gateway_instance_heartbeat_age_seconds",
            "Since the scheduler's heartbeat last rose, as reported.",
            labels=labels,
        )
        for replica in self.state.directory:
            for stage, endpoint in replica.endpoints():
                where = [stage, endpoint.instance, endpoint.address]
                outstanding.add_metric(where, replica.outstanding)
                stats = replica.stats.get(endpoint.instance)
                if stats is not None:
                    queued.add_metric(where, stats.queued)
                    age.add_metric(where, stats.heartbeat_age_seconds)
        yield from (outstanding, queued, age)


def _counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(f"omni_gateway_{name}", help_text, value=value)


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"omni_gateway_{name}", help_text, value=value)
