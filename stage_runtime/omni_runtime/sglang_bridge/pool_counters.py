"""How much of an engine's memory is free: what must come back when requests are over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omni_runtime.sglang_bridge.hosted_scheduler import HostedScheduler


@dataclass(frozen=True, slots=True)
class PoolCounters:
    """Free memory of an engine.

    Attributes:
        tokens_free: positions of the KV pool that no request holds; what the prefix cache keeps
            counts as free, because it gives way.
        tokens: size of the pool.
        rows_free: requests that could start.
        waiting, running, held: requests by where they are.
    """

    tokens_free: int
    tokens: int
    rows_free: int
    waiting: int
    running: int
    held: int


def pool_counters(hosted: HostedScheduler) -> PoolCounters:
    """Count now; between two steps the numbers are consistent."""
    free = hosted.token_to_kv_pool_allocator.available_size()
    evictable = hosted.tree_cache.evictable_size()
    held = hosted.held
    return PoolCounters(
        tokens_free=int(free + evictable),
        tokens=int(hosted.max_total_num_tokens),
        rows_free=int(hosted.req_to_token_pool.available_size()),
        waiting=len(hosted.waiting_queue),
        running=len(hosted.running_batch.reqs),
        held=0 if held is None else len(held.reqs),
    )
