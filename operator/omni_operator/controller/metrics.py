"""Metrics of the operator, in a registry of its own so that several operators fit one process."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counters and gauges; names begin with `omnipipe_operator_`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconciles = Counter(
            "omnipipe_operator_reconciles",
            "Turns of the queue, by how they ended: done, failed or gone.",
            ("result",),
            registry=self.registry,
        )
        self.reconcile_seconds = Histogram(
            "omnipipe_operator_reconcile_seconds",
            "Duration of a turn of the queue.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.writes = Counter(
            "omnipipe_operator_writes",
            "Writes to the API server, by what was done and to which kind.",
            ("verb", "kind"),
            registry=self.registry,
        )
        self.drift_repairs = Counter(
            "omnipipe_operator_drift_repairs",
            "Owned objects put back after somebody changed or deleted them.",
            ("kind",),
            registry=self.registry,
        )
        self.watch_gaps = Counter(
            "omnipipe_operator_watch_gaps",
            "Changes that a watch missed and an audit found.",
            ("kind",),
            registry=self.registry,
        )

    def gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read when it is asked for."""
        gauge = Gauge(f"omnipipe_operator_{name}", description, registry=self.registry)
        gauge.set_function(read)
