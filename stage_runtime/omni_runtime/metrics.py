"""Prometheus metrics of one process group, read from the live objects when somebody scrapes.

Nothing is counted twice: stages, schedulers and edges know their own numbers, and a scrape asks
them. The client library is imported only by processes that serve the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from omni_runtime.outlet import MeasuredEdge
from omni_runtime.scheduler import STEP_SECONDS
from omni_runtime.stage import Stage
from omni_runtime.stage_host import StageHost

if TYPE_CHECKING:
    from omni_runtime.sglang_bridge.pool_counters import PoolCounters


@runtime_checkable
class PooledScheduler(Protocol):
    """A scheduler over an engine with a KV cache."""

    @property
    def pool(self) -> PoolCounters:
        """What is free of the engine's memory now."""
        ...


class GroupCollector(Collector):
    """Collects the metrics of the stages and edges of one host."""

    def __init__(self, host: StageHost) -> None:
        self._host = host

    def collect(self) -> Iterator[Metric]:
        """Yield every metric, each labelled by stage instance, edges also by peer."""
        stages = list(self._host.stages.values())
        yield _gauge(
            "omni_stage_queued_requests",
            "Requests whose inputs are not complete.",
            {stage.instance: stage.queued for stage in stages},
        )
        yield _gauge(
            "omni_stage_in_flight_requests",
            "Requests the stage holds anything of.",
            {stage.instance: stage.in_flight for stage in stages},
        )
        yield _gauge(
            "omni_stage_inbox_messages",
            "Messages the scheduler has not taken yet.",
            {stage.instance: len(stage.scheduler.inbox) for stage in stages},
        )
        yield from self._engines(stages)
        yield from self._counters(stages)
        yield self._step_seconds(stages)
        yield from self._edges()

    def _engines(self, stages: list[Stage]) -> Iterator[Metric]:
        pools = {
            stage.instance: stage.scheduler.pool
            for stage in stages
            if isinstance(stage.scheduler, PooledScheduler)
        }
        yield _gauge(
            "omni_engine_cache_tokens",
            "Positions of the engine's KV cache.",
            {instance: pool.tokens for instance, pool in pools.items()},
        )
        yield _gauge(
            "omni_engine_cache_free_tokens",
            "Positions of the KV cache that no request holds.",
            {instance: pool.tokens_free for instance, pool in pools.items()},
        )
        requests = GaugeMetricFamily(
            "omni_engine_requests",
            "Requests in the engine: waiting to begin, running, or held until input comes.",
            labels=["stage", "state"],
        )
        for instance, pool in pools.items():
            for state in ("waiting", "running", "held"):
                requests.add_metric([instance, state], getattr(pool, state))
        yield requests

    def _counters(self, stages: list[Stage]) -> Iterator[Metric]:
        yield _counter(
            "omni_stage_busy_seconds",
            "Time spent inside scheduler steps.",
            {stage.instance: stage.scheduler.heartbeat.busy_seconds for stage in stages},
        )
        yield _counter(
            "omni_stage_stalls",
            "Times a request was held back because a reader had no room.",
            {stage.instance: stage.counts.stalls for stage in stages},
        )
        failures = CounterMetricFamily(
            "omni_stage_failed_requests",
            "Requests that failed here, by reason.",
            labels=["stage", "reason"],
        )
        for stage in stages:
            for reason, count in stage.counts.failures.items():
                failures.add_metric([stage.instance, reason], count)
        yield failures

    def _step_seconds(self, stages: list[Stage]) -> Metric:
        family = HistogramMetricFamily(
            "omni_stage_step_duration_seconds", "Length of scheduler steps.", labels=["stage"]
        )
        for stage in stages:
            heartbeat = stage.scheduler.heartbeat
            bounds = [*map(str, STEP_SECONDS), "+Inf"]
            counts = heartbeat.step_counts()
            buckets = [(bound, sum(counts[: n + 1])) for n, bound in enumerate(bounds)]
            family.add_metric([stage.instance], buckets, heartbeat.busy_seconds)
        return family

    def _edges(self) -> Iterator[Metric]:
        unreleased = GaugeMetricFamily(
            "omni_edge_unreleased_bytes",
            "Bytes sent or under way whose credit has not come back.",
            labels=["stage", "peer"],
        )
        held = GaugeMetricFamily(
            "omni_edge_held_bytes", "Bytes that wait here for credit.", labels=["stage", "peer"]
        )
        sent = CounterMetricFamily(
            "omni_edge_sent_bytes", "Bytes sent to the peer.", labels=["stage", "peer"]
        )
        # A peer that was restarted has an edge for each of its lives until the old one ends.
        lives: dict[tuple[str, str], list[MeasuredEdge]] = {}
        for (source, endpoint), edge in self._host.outlet.edges.items():
            lives.setdefault((source, endpoint.instance), []).append(edge)
        for labels, edges in lives.items():
            unreleased.add_metric(labels, sum(edge.unreleased_bytes for edge in edges))
            held.add_metric(labels, sum(edge.held_bytes for edge in edges))
            sent.add_metric(labels, sum(edge.sent_bytes for edge in edges))
        yield unreleased
        yield held
        yield sent


def registry_of(host: StageHost) -> CollectorRegistry:
    """Return a registry that collects the metrics of a host, and nothing of other hosts."""
    registry = CollectorRegistry()
    registry.register(GroupCollector(host))
    return registry


def _gauge(name: str, help_text: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=["stage"])
    for stage, value in values.items():
        family.add_metric([stage], value)
    return family


def _counter(name: str, help_text: str, values: dict[str, float] | dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=["stage"])
    for stage, value in values.items():
        family.add_metric([stage], value)
    return family
