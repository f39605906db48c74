"""Limits and times of a Coordinator, fixed when it is made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """What a Coordinator tolerates.

    Attributes:
        max_in_flight: most unfinished requests; one more is refused with QueueFull.
        max_waiting: most requests that wait for a replica to come (back).
        route_wait_seconds: how long one waits for it before it fails with Unavailable.
        default_deadline_seconds: deadline of a request that names none.
        max_deadline_seconds: longest deadline a request may ask for.
        max_total_backlog_bytes: most unread output of all requests together; null for no limit.
        lease_seconds: silence after which a group process counts as lost, and after which the
            groups count this gateway as lost.
        max_resubmits: how often a request starts anew after losing a replica, as long as nothing of
            it reached its client. Off by default: it keeps every request's media in the gateway,
            and after a crash it doubles the load just when capacity is short. Clients retry with
            better knowledge.
    """

    max_in_flight: int = 1024
    max_waiting: int = 128
    route_wait_seconds: float = 10.0
    default_deadline_seconds: float = 600.0
    max_deadline_seconds: float = 3600.0
    max_total_backlog_bytes: int | None = 1 << 30
    lease_seconds: float = 5.0
    max_resubmits: int = 0
