"""What a memory fraction means to an engine."""

from __future__ import annotations

import pytest

from omni_runtime.engine_budget import BudgetMisplaced, kv_cache_bytes, take_kv_cache_bytes
from omni_runtime.sglang_bridge.kv_budget import KvBudget, NoKvHeadroom, budget_of, pool_bytes

GIB = 1 << 30


def test_a_fraction_is_of_the_whole_device_minus_what_the_process_holds() -> None:
    assert pool_bytes(KvBudget(fraction=0.5), 80 * GIB, 30 * GIB) == 10 * GIB


def test_no_headroom_is_an_error_at_start() -> None:
    with pytest.raises(NoKvHeadroom, match="leaves no KV-cache headroom"):
        pool_bytes(KvBudget(fraction=0.10), 80 * GIB, 9 * GIB)


def test_bytes_bypass_everything() -> None:
    budget = budget_of(2 * GIB, 0.05, reserve=0.05)
    assert budget is not None
    assert pool_bytes(budget, 80 * GIB, 79 * GIB) == 2 * GIB


def test_a_reserve_is_taken_from_the_fraction() -> None:
    assert budget_of(None, 0.5, reserve=0.05) == KvBudget(fraction=0.45)


def test_a_reserve_may_not_leave_too_little() -> None:
    with pytest.raises(NoKvHeadroom, match=r"below 0\.1"):
        budget_of(None, 0.12, reserve=0.05)


def test_a_written_static_fraction_is_not_reserved_from() -> None:
    budget = budget_of(None, 0.12, reserve=0.05, static_fraction_written=True)
    assert budget == KvBudget(fraction=0.12)


def test_without_a_declaration_sglang_decides() -> None:
    assert budget_of(None, None, reserve=0.05) is None


def test_a_byte_budget_reaches_the_one_engine_built_inside() -> None:
    with kv_cache_bytes("thinker", GIB):
        assert take_kv_cache_bytes() == GIB
    assert take_kv_cache_bytes() is None


@pytest.mark.parametrize("engines", [0, 2])
def test_a_byte_budget_that_fits_no_engine_is_a_mistake(engines: int) -> None:
    def build() -> None:
        with kv_cache_bytes("decode", GIB):
            for _ in range(engines):
                take_kv_cache_bytes()

    with pytest.raises(BudgetMisplaced, match=f"'decode'.* {engines} engines"):
        build()
