"""How much memory a KV pool may take, by the words of the configuration.

SGLang measures what is free on the device, which on a shared one is whatever the neighbours left at
that moment. A stage that declared its share gets exactly that share: fraction times the whole
device, minus what its own process holds already.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omni_config.errors import OmniError

if TYPE_CHECKING:
    from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator

MIN_FRACTION = 0.1
"""Below this share no engine can do useful work, so less is taken for a mistake."""


class NoKvHeadroom(OmniError):
    """The stage's share of the device is used up before its KV cache."""


@dataclass(frozen=True, slots=True)
class KvBudget:
    """What bounds the pool; exactly one is set.

    Attributes:
        cache_bytes: the pool itself, per rank.
        fraction: share of the whole device that the process may use, the pool included.
    """

    cache_bytes: int | None = None
    fraction: float | None = None


def budget_of(
    cache_bytes: int | None,
    fraction: float | None,
    *,
    reserve: float = 0.0,
    static_fraction_written: bool = False,
) -> KvBudget | None:
    """Return the budget of a stage, None when SGLang's own arguments decide.

    Args:
        cache_bytes: `engine.kv_cache_bytes`; it bypasses everything else.
        fraction: share of the device used by the process up to and including this stage.
        reserve: share left to neighbours within the stage's share.
        static_fraction_written: whether `engine.mem_fraction_static` was written; no reserve is
            taken from a number that somebody chose.

    Raises:
        NoKvHeadroom: less than `MIN_FRACTION` is left after the reserve.
    """
    if cache_bytes is not None:
        return KvBudget(cache_bytes=cache_bytes)
    if fraction is None:
        return None
    if reserve and not static_fraction_written:
        rest = fraction - reserve
        if rest < MIN_FRACTION - 1e-9:
            raise NoKvHeadroom(
                f"memory fraction {fraction:g} minus encoder_mem_reserve {reserve:g} leaves "
                f"{rest:g}, which is below {MIN_FRACTION:g}"
            )
        fraction = rest
    return KvBudget(fraction=fraction)


def pool_bytes(budget: KvBudget, total_bytes: int, used_bytes: int) -> int:
    """Return the size of the pool.

    Args:
        total_bytes: memory of the device.
        used_bytes: memory this process holds on it.

    Raises:
        NoKvHeadroom: nothing is left.
    """
    if budget.cache_bytes is not None:
        return budget.cache_bytes
    assert budget.fraction is not None
    rest = int(budget.fraction * total_bytes) - used_bytes
    if rest <= 0:
        raise NoKvHeadroom(
            f"memory fraction {budget.fraction:g} of {total_bytes / 2**30:.1f} GiB leaves no "
            f"KV-cache headroom: the process already uses {used_bytes / 2**30:.1f} GiB"
        )
    return rest


@contextmanager
def kv_budget(budget: KvBudget | None) -> Iterator[None]:
    """Answer SGLang's question for free memory with the budget, while the block runs."""
    if budget is None:
        yield
        return
    from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator

    from omni_runtime.sglang_bridge.device_memory import device_memory

    measure = KVCacheConfigurator._profile_available_bytes

    def answer(configurator: KVCacheConfigurator, pre_model_load_memory: int) -> int:
        total, used = device_memory(configurator.device, configurator.gpu_id)
        return pool_bytes(budget, total, used)

    KVCacheConfigurator._profile_available_bytes = answer
    try:
        yield
    finally:
        KVCacheConfigurator._profile_available_bytes = measure
